#include "data/samples/text/text_report.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "data/samples/report_parts.h"
#include "data/samples/text/token_dataset.h"
#include "data/text/chat_template.h"
#include "data/text/vocabulary.h"

namespace lockstep {
namespace {

constexpr int64_t kMostCompared = 1 << 25;  // records, so that their hashes take 256 MiB at most

using Lengths = std::map<int64_t, int64_t>;  // how many have each

int64_t median_of(const Lengths& lengths) {
  int64_t count = 0, below = 0, median = 0;
  for (const auto& [length, times] : lengths) count += times;
  for (auto at = lengths.begin(); at != lengths.end() && below <= count / 2; ++at)
    below += at->second, median = at->first;
  return median;
}

template <class Id>
void mark(const uint8_t* bytes, int64_t count, std::vector<uint8_t>& used) {
  const Id* ids = reinterpret_cast<const Id*>(bytes);
  for (int64_t i = 0; i < count; ++i) used[ids[i]] = 1;
}

// Marks the ids of a piece of the tokens, which were checked when it was read.
void mark_used(const uint8_t* bytes, int64_t count, int64_t width, std::vector<uint8_t>& used) {
  if (width == 1) mark<uint8_t>(bytes, count, used);
  else if (width == 2) mark<uint16_t>(bytes, count, used);
  else mark<uint32_t>(bytes, count, used);
}

// Reads all tokens of a file without records.
void inspect_sequence(const DatasetFile& file, std::vector<uint8_t>& used, const ProgressCallback& progress) {
  const StoredRows& rows = *file.rows;
  for (int64_t chunk = 0; chunk < rows.chunks(); ++chunk) {
    rows.visit(rows.rows_of(chunk),
               [&](IndexRange part, const uint8_t* bytes) { mark_used(bytes, part.size(), rows.row_bytes(), used); });
    if (progress) progress(rows.rows_of(chunk).end, rows.size());
  }
}

// Reads all tokens, by records.
void inspect_records(const DatasetFile& file, DatasetReport& report, std::vector<uint8_t>& used,
                     const ProgressCallback& progress) {
  const RecordsHeader& h = file.header.records;
  report.records = h.count;
  Lengths lengths, chosen, rejected;
  std::vector<uint64_t> hashes;
  const bool compares = h.count <= kMostCompared;
  const int64_t width = file.rows->row_bytes();
  int64_t told = 0, record = 0;
  visit_records(file, [&](IndexRange tokens) {
    const bool first = record++ % 2 == 0;
    ++lengths[tokens.size()];
    if (h.paired) ++(first ? chosen : rejected)[tokens.size()];
    std::optional<Hasher128> pieces;  // of a record that lies in several chunks
    file.rows->visit(tokens, [&](IndexRange piece, const uint8_t* bytes) {
      mark_used(bytes, piece.size(), width, used);
      if (!compares) return;
      const auto size = static_cast<size_t>(piece.size() * width);
      if (piece.size() == tokens.size()) return hashes.push_back(hash128(bytes, size).low);
      if (!pieces) pieces.emplace();
      pieces->update(bytes, size);
    });
    if (pieces) hashes.push_back(pieces->digest().low);
    if (h.paired && !first && compares) {  // a pair has one hash
      const uint64_t both[] = {hashes[hashes.size() - 2], hashes.back()};
      hashes.pop_back();
      hashes.back() = hash64(both, sizeof both);
    }
    if (!progress || (tokens.end - told < tokens_per_chunk() && tokens.end < report.count)) return;
    told = tokens.end;
    progress(told, report.count);
  });
  std::sort(hashes.begin(), hashes.end());
  report.duplicates = compares ? static_cast<int64_t>(hashes.end() - std::unique(hashes.begin(), hashes.end())) : -1;
  if (!lengths.empty()) {
    report.shortest = lengths.begin()->first, report.longest = lengths.rbegin()->first;
    report.median = median_of(lengths);
  }
  if (h.paired) report.pairs = h.count / 2;
  report.median_chosen = median_of(chosen), report.median_rejected = median_of(rejected);
  if (file.targets)
    file.targets->visit({0, file.targets->size()}, [&](IndexRange piece, const uint8_t* bytes) {
      report.targets += std::count(bytes, bytes + piece.size(), 1);
    });
}

std::string decoded(const Vocabulary* vocabulary, const std::vector<int32_t>& ids) {
  if (vocabulary) return vocabulary->decode_text(ids);
  std::string out;
  for (int32_t id : ids) out += str(out.empty() ? "" : " ", id);
  return out;
}

IndexRange tokens_of(const DatasetFile& file, int64_t index) {
  const int64_t tokens = file.header.tokens, records = file.header.records.count;
  if (records == 0) return {index * kShownTokens, std::min(tokens, (index + 1) * kShownTokens)};
  std::vector<int64_t> ends;  // of the record before, and its own
  file.record_ends->visit({std::max<int64_t>(0, index - 1), index + 1}, [&](IndexRange rows, const uint8_t* bytes) {
    const auto* values = reinterpret_cast<const int64_t*>(bytes);
    ends.insert(ends.end(), values, values + rows.size());
  });
  return {index > 0 ? ends.front() : 0, ends.back()};
}

void require_text(const DatasetFile& file, int64_t index) {
  const DatasetHeader& h = file.header;
  const bool records = h.records.count > 0;
  const int64_t count = records ? sample_count(h) : ceil_div(h.tokens, kShownTokens);
  const std::string unit = !records           ? str(" stretches of ", kShownTokens, " tokens")
                           : h.records.paired ? " pairs of records"
                                              : " records";
  require(index >= 0 && index < count, ExitCode::kUsage, file.path, ": has no text ", index, "; it has ", count, unit,
          ", counted from 0");
}

// What `text` of a ShownText is, and how many targets are in it.
std::pair<std::string, int64_t> marked_text(const FileTokens& source, IndexRange tokens) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens.size()));
  std::vector<uint8_t> marks(ids.size(), 1);
  source.read(tokens, ids.data());
  if (source.has_targets()) source.read_targets(tokens, marks.data());
  std::string text;
  for (size_t begin = 0; begin < ids.size();) {
    size_t end = begin;
    while (end < ids.size() && marks[end] == marks[begin]) ++end;
    const std::string part = decoded(source.vocabulary(), {ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                                           ids.begin() + static_cast<std::ptrdiff_t>(end)});
    if (!source.vocabulary() && begin > 0) text += ' ';
    text += marks[begin] ? part : str(kNoTargetBegin, part, kNoTargetEnd);
    begin = end;
  }
  return {std::move(text), std::count(marks.begin(), marks.end(), 1)};
}

}  // namespace

void inspect_text(const DatasetFile& file, DatasetReport& report, const ProgressCallback& progress) {
  const DatasetHeader& h = file.header;
  report.count = file.rows->size();
  report.level = h.level();
  report.targets = file.targets ? 0 : h.tokens;
  std::vector<uint8_t> used(static_cast<size_t>(h.vocabulary_size));
  if (h.records.count > 0) inspect_records(file, report, used, progress);
  else inspect_sequence(file, used, progress);
  report.used = std::count(used.begin(), used.end(), 1);
  report.vocabulary = h.vocabulary_size;
  if (h.vocabulary && h.vocabulary->chat() && h.vocabulary->chat()->has_template())
    report.chat = h.vocabulary->chat()->name;
  if (h.vocabulary)
    for (uint32_t c : h.vocabulary->code_points()) report.characters += to_utf8(c);
}

std::string text_lines(const DatasetReport& r) {
  std::string out = str("kind: tokens\nlevel: ", r.level, "\ntokens: ", r.count, "\nvocabulary: ", r.vocabulary,
                        "\nused: ", r.used, "\n");
  if (r.records > 0)
    out += str("records: ", r.records, " of ", r.shortest, " to ", r.longest, " tokens, median ", r.median, "\n",
               r.pairs > 0 ? str("pairs: ", r.pairs, ", chosen of median ", r.median_chosen, " tokens, rejected of ",
                                 r.median_rejected, "; a run trains on both, or on the chosen ones\n")
                           : "",
               duplicates_text(r), "\ntargets: ", r.targets, "\n");
  if (r.classes > 0) out += str("classes: ", r.classes, "\nrecords per class: ", joined(counts_by_class(r), 20), "\n");
  if (!r.chat.empty()) out += str("chat template: ", escaped(r.chat, Lines::kEscape), "\n");
  if (!r.characters.empty()) out += str("characters: ", escaped(r.characters, Lines::kEscape), "\n");
  return out;
}

JsonObject text_json(const DatasetReport& r) {
  JsonObject out = {
      {"kind", "tokens"}, {"level", r.level}, {"tokens", r.count}, {"vocabulary", r.vocabulary}, {"used", r.used}};
  if (r.records > 0)
    out.insert(out.end(), {{"records", r.records},
                           {"shortest_record", r.shortest},
                           {"median_record", r.median},
                           {"longest_record", r.longest},
                           {"duplicates", duplicates_json(r)},
                           {"targets", r.targets}});
  if (r.pairs > 0)
    out.insert(out.end(),
               {{"pairs", r.pairs}, {"median_chosen", r.median_chosen}, {"median_rejected", r.median_rejected}});
  if (r.classes > 0)
    out.insert(out.end(), {{"classes", r.classes},
                           {"records_per_class", json_list(r.per_class)},
                           {"class_names", json_list(r.class_names)}});
  if (!r.chat.empty()) out.emplace_back("chat_template", r.chat);
  if (!r.characters.empty()) out.emplace_back("characters", r.characters);
  return out;
}

ShownText show_text(const std::shared_ptr<const DatasetFile>& file, int64_t index) {
  require_text(*file, index);
  const FileTokens source(file);
  const bool paired = file->header.records.paired;
  const IndexRange tokens = tokens_of(*file, paired ? 2 * index : index);
  auto [text, targets] = marked_text(source, tokens);
  ShownText out{tokens.begin, tokens.end, targets, std::move(text)};
  if (paired) {
    auto [rejected, of_rejected] = marked_text(source, tokens_of(*file, 2 * index + 1));
    out.rejected = std::move(rejected);
    out.rejected_targets = of_rejected;
  }
  if (file->header.records.labelled) {
    out.label = file->labels[static_cast<size_t>(index)];
    if (!file->weights.empty()) out.weight = file->weight_of(index);
    const auto& names = file->header.class_names;
    if (!names.empty()) out.class_name = escaped(names[static_cast<size_t>(*out.label)], Lines::kEscape);
  }
  return out;
}

ShownSample printed_text(const ShownText& shown) {
  JsonObject line{{"begin", shown.begin}, {"end", shown.end}, {"targets", shown.targets}, {"text", shown.text}};
  if (shown.rejected)
    line.insert(line.end(), {{"rejected", *shown.rejected}, {"rejected_targets", shown.rejected_targets}});
  if (shown.label) line.insert(line.end(), {{"label", *shown.label}, {"class", shown.class_name}});
  if (shown.weight) line.emplace_back("weight", double{*shown.weight});
  const std::string weight = shown.weight ? str(", weight ", *shown.weight) : "";
  const std::string what = shown.label ? str("label ", *shown.label, " (", shown.class_name, ")", weight)
                                       : str("of which ", shown.targets, " are targets");
  std::string text = str("tokens ", shown.begin, " to ", shown.end, ", ", what, shown.rejected ? "; chosen:\n" : ":\n",
                         shown.text, "\n");
  if (shown.rejected)
    text += str("rejected, of which ", shown.rejected_targets, " are targets:\n", *shown.rejected, "\n");
  return {std::move(text), std::move(line), {}};
}

}  // namespace lockstep
