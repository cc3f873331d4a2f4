#include "data/samples/inspect.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "core/io/json.h"

namespace lockstep {

namespace {

constexpr int64_t kMostCompared = 1 << 25;                // records, so that their hashes take 256 MiB at most
constexpr int64_t kMostRowsCompared = kMostCompared / 2;  // which have an index each beside the hash
constexpr size_t kRepeatsTold = 5;

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
void inspect_text(const DatasetFile& file, std::vector<uint8_t>& used, const ProgressCallback& progress) {
  const StoredRows& rows = *file.rows;
  for (int64_t chunk = 0; chunk < rows.chunks(); ++chunk) {
    rows.visit(rows.rows_of(chunk),
               [&](Range part, const uint8_t* bytes) { mark_used(bytes, part.size(), rows.row_bytes(), used); });
    if (progress) progress(rows.rows_of(chunk).end, rows.size());
  }
}

// Reads all tokens, by records.
void inspect_records(const DatasetFile& file, DatasetReport& report, std::vector<uint8_t>& used,
                     const ProgressCallback& progress) {
  const RecordsHeader& h = file.header.records;
  report.records = h.count;
  report.chunks += static_cast<int64_t>(h.end_hashes.size() + h.target_hashes.size());
  Lengths lengths, chosen, rejected;
  std::vector<uint64_t> hashes;
  const bool compares = h.count <= kMostCompared;
  const int64_t width = file.rows->row_bytes();
  int64_t told = 0, record = 0;
  visit_records(file, [&](Range tokens) {
    const bool first = record++ % 2 == 0;
    ++lengths[tokens.size()];
    if (h.paired) ++(first ? chosen : rejected)[tokens.size()];
    std::optional<Hasher128> pieces;  // of a record that lies in several chunks
    file.rows->visit(tokens, [&](Range piece, const uint8_t* bytes) {
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
    file.targets->visit({0, file.targets->size()}, [&](Range piece, const uint8_t* bytes) {
      report.targets += std::count(bytes, bytes + piece.size(), 1);
    });
}

// Reads every row or image, and finds those that are there twice.
void inspect_rows(const DatasetFile& file, DatasetReport& report, const ProgressCallback& progress) {
  const int64_t count = file.header.images[0];
  const bool compares = count <= kMostRowsCompared;
  std::vector<std::pair<uint64_t, int64_t>> hashes;  // and index
  for (int64_t i = 0; i < count; ++i) {
    if (file.header.encoded) {
      const uint64_t hash = hash64(file.encoded_file(i));
      if (compares) hashes.emplace_back(hash, i);
    } else {
      file.rows->visit({i, i + 1}, [&](Range, const uint8_t* bytes) {
        if (compares) hashes.emplace_back(hash64(bytes, static_cast<size_t>(file.rows->row_bytes())), i);
      });
    }
    if (progress && (i % 256 == 255 || i + 1 == count)) progress(i + 1, count);
  }
  report.duplicates = compares ? 0 : -1;
  if (!compares) return;
  const auto target = [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    return file.header.target == TargetKind::kNumbers  ? double{file.numbers[at]}
           : file.header.target == TargetKind::kLabels ? double(file.labels[at])
                                                       : 0.0;
  };
  std::sort(hashes.begin(), hashes.end());
  for (size_t i = 1, first = 0; i < hashes.size(); ++i) {
    if (hashes[i].first != hashes[first].first) {
      first = i;
      continue;
    }
    ++report.duplicates;
    report.contradictions += target(hashes[i].second) != target(hashes[first].second);
    report.repeats.emplace_back(hashes[i].second, hashes[first].second);
    std::sort(report.repeats.begin(), report.repeats.end());
    if (report.repeats.size() > kRepeatsTold) report.repeats.pop_back();
  }
}

void count_pixels(const DatasetFile& file, DatasetReport& report) {
  for (int64_t i = 0; i < file.header.images[0]; ++i)
    file.visit_image(i, [&](const uint8_t*, int64_t height, int64_t width) {
      for (uint8_t value : file.mask(i, height, width))
        ++(value == file.header.ignored ? report.ignored : report.per_class[value]);
    });
}

}  // namespace

DatasetReport inspect_dataset(const std::string& path, const ProgressCallback& progress) {
  // Reading all rows once through the cache, whose memory is small, checks every chunk of a file of any size.
  auto file = open_dataset_file(path, 16 << 20);
  const DatasetHeader& h = file->header;
  const StoredRows& rows = *file->rows;
  DatasetReport report;
  report.kind = h.kind;
  report.count = h.kind == DataKind::kTokens ? rows.size() : h.images[0];
  report.identity = h.identity;
  report.chunks =
      static_cast<int64_t>(h.hashes.size() + h.label_hashes.size() + h.end_hashes.size() + h.target_end_hashes.size());
  std::error_code ignored;
  report.file_bytes = static_cast<int64_t>(std::filesystem::file_size(path, ignored));
  report.classes = h.classes;
  report.class_names = h.class_names;
  report.per_class.resize(static_cast<size_t>(h.classes));
  for (int32_t label : file->labels) ++report.per_class[static_cast<size_t>(label)];
  if (h.kind == DataKind::kTokens) {
    report.level = h.level();
    report.targets = file->targets ? 0 : h.tokens;
    std::vector<uint8_t> used(static_cast<size_t>(h.vocabulary_size));
    if (h.records.count > 0) inspect_records(*file, report, used, progress);
    else inspect_text(*file, used, progress);
    report.used = std::count(used.begin(), used.end(), 1);
    report.vocabulary = h.vocabulary_size;
    if (h.vocabulary)
      for (uint32_t c : h.vocabulary->code_points()) report.characters += to_utf8(c);
  } else {
    for (int i = 1; i < h.images.rank(); ++i) report.image_shape.push_back(h.images[i]);
    report.columns = h.columns;
    report.mean = h.mean;
    report.stddev = h.stddev;
    report.target = h.target;
    inspect_rows(*file, report, progress);
    if (file->masks) count_pixels(*file, report);
    for (size_t at = 0; at < file->boxes.size(); at += kBoxValues)
      ++report.per_class[static_cast<size_t>(file->boxes[at])];
    for (int64_t i = 0; h.target == TargetKind::kBoxes && i < report.count; ++i)
      report.with_boxes += !file->boxes_of(i).empty();
    if (h.target == TargetKind::kNumbers) {
      const auto [least, most] = std::minmax_element(file->numbers.begin(), file->numbers.end());
      report.target_least = *least + h.target_offset, report.target_most = *most + h.target_offset;
      report.target_mean = h.target_mean, report.target_std = h.target_std;
    }
  }
  return report;
}

namespace {

template <class List>
std::string joined(const List& list, size_t most) {
  std::string out;
  for (size_t i = 0; i < list.size() && i < most; ++i) out += cat(i ? ", " : "", list[i]);
  return out + (list.size() > most ? ", ..." : "");
}

}  // namespace

namespace {

// "12", or "12 (cat)" where the label has a name.
std::vector<std::string> counts_by_class(const DatasetReport& r) {
  std::vector<std::string> out;
  for (size_t i = 0; i < r.per_class.size(); ++i)
    out.push_back(r.class_names.empty() ? cat(r.per_class[i])
                                        : cat(r.per_class[i], " (", escaped(r.class_names[i], Lines::kEscape), ")"));
  return out;
}

// "duplicates: 2, of which 1 with another target: 17 (as 4), 25 (as 4)"
std::string duplicates_text(const DatasetReport& r) {
  if (r.duplicates < 0) return "duplicates: not counted";
  std::string out = cat("duplicates: ", r.duplicates);
  if (r.contradictions > 0) out += cat(", of which ", r.contradictions, " with another target");
  for (size_t i = 0; i < r.repeats.size(); ++i)
    out += cat(i ? ", " : ": ", r.repeats[i].first, " (as ", r.repeats[i].second, ")");
  return out + (r.duplicates > static_cast<int64_t>(r.repeats.size()) && !r.repeats.empty() ? ", ..." : "");
}

// The lines about labels, masks or numbers, without the last line end.
std::string targets_text(const DatasetReport& r, const std::string& of_class) {
  if (r.target == TargetKind::kNumbers)
    return cat("targets: ", r.target_least, " to ", r.target_most, ", mean ", r.target_mean, ", std ", r.target_std);
  const bool boxes = r.target == TargetKind::kBoxes;
  const int64_t count = std::accumulate(r.per_class.begin(), r.per_class.end(), int64_t{0});
  return cat(boxes ? cat("boxes: ", count, " in ", r.with_boxes, " images\n") : "", "classes: ", r.classes, "\n",
             of_class, joined(counts_by_class(r), 20), r.ignored > 0 ? cat(", ignored: ", r.ignored) : "");
}

}  // namespace

std::string to_text(const DatasetReport& r) {
  std::string out;
  if (r.kind == DataKind::kTokens) {
    out += cat("kind: tokens\nlevel: ", r.level, "\ntokens: ", r.count, "\nvocabulary: ", r.vocabulary,
               "\nused: ", r.used, "\n");
    if (r.records > 0)
      out += cat("records: ", r.records, " of ", r.shortest, " to ", r.longest, " tokens, median ", r.median, "\n",
                 r.pairs > 0 ? cat("pairs: ", r.pairs, ", chosen of median ", r.median_chosen, " tokens, rejected of ",
                                   r.median_rejected, "; a run trains on the chosen ones\n")
                             : "",
                 duplicates_text(r), "\ntargets: ", r.targets, "\n");
    if (r.classes > 0)
      out += cat("classes: ", r.classes, "\nrecords per class: ", joined(counts_by_class(r), 20), "\n");
    if (!r.characters.empty()) out += cat("characters: ", escaped(r.characters, Lines::kEscape), "\n");
  } else if (r.kind == DataKind::kTable) {
    out +=
        cat("kind: table\nrows: ", r.count, "\nfeatures: ", r.image_shape[0], "\n", targets_text(r, "rows per class: "),
            "\nmean: ", joined(r.mean, 16), "\nstd: ", joined(r.stddev, 16), "\n");
    if (!r.columns.empty()) out += cat("columns: ", escaped(r.columns, Lines::kEscape), "\n");
  } else {
    const bool mixed = r.image_shape[0] == 0;
    const char* of_class = r.target == TargetKind::kMasks   ? "pixels per class: "
                           : r.target == TargetKind::kBoxes ? "boxes per class: "
                                                            : "images per class: ";
    out += cat("kind: images\nimages: ", r.count, "\nshape (height, width, channels): ",
               mixed ? cat("mixed sizes, ", r.image_shape[2], " channels") : to_text(r.image_shape), "\n",
               targets_text(r, of_class), "\nmean: ", joined(r.mean, 16), "\nstd: ", joined(r.stddev, 16), "\n");
  }
  if (r.kind != DataKind::kTokens) out += duplicates_text(r) + "\n";
  return out +
         cat("chunks: ", r.chunks, ", all whole\nfile size: ", r.file_bytes, " bytes\nidentity: ", r.identity, "\n");
}

std::string to_json(const DatasetReport& r) {
  const auto list = [](const auto& values) { return json_array(std::vector<JsonValue>(values.begin(), values.end())); };
  JsonObject out;
  if (r.kind == DataKind::kTokens) {
    out = {{"kind", "tokens"}, {"level", r.level}, {"tokens", r.count}, {"vocabulary", r.vocabulary}, {"used", r.used}};
    if (r.records > 0)
      out.insert(out.end(), {{"records", r.records},
                             {"shortest_record", r.shortest},
                             {"median_record", r.median},
                             {"longest_record", r.longest},
                             {"duplicates", r.duplicates < 0 ? JsonValue(nullptr) : JsonValue(r.duplicates)},
                             {"targets", r.targets}});
    if (r.pairs > 0)
      out.insert(out.end(),
                 {{"pairs", r.pairs}, {"median_chosen", r.median_chosen}, {"median_rejected", r.median_rejected}});
    if (r.classes > 0)
      out.insert(
          out.end(),
          {{"classes", r.classes}, {"records_per_class", list(r.per_class)}, {"class_names", list(r.class_names)}});
    if (!r.characters.empty()) out.emplace_back("characters", r.characters);
  } else {
    const bool table = r.kind == DataKind::kTable, masks = r.target == TargetKind::kMasks,
               boxes = r.target == TargetKind::kBoxes;
    out = {{"kind", table ? "table" : "images"},
           {table ? "rows" : "images", r.count},
           {"shape", list(r.image_shape)},
           {"classes", r.classes},
           {table   ? "rows_per_class"
            : masks ? "pixels_per_class"
            : boxes ? "boxes_per_class"
                    : "images_per_class",
            list(r.per_class)},
           {"class_names", list(r.class_names)},
           {"mean", list(r.mean)},
           {"std", list(r.stddev)}};
    if (masks) out.emplace_back("ignored_pixels", r.ignored);
    if (boxes) out.emplace_back("images_with_boxes", r.with_boxes);
    std::vector<JsonValue> repeats;
    for (const auto& [index, first] : r.repeats) repeats.emplace_back(json_array(std::vector<JsonValue>{index, first}));
    out.insert(out.end(), {{"duplicates", r.duplicates < 0 ? JsonValue(nullptr) : JsonValue(r.duplicates)},
                           {"contradictions", r.contradictions},
                           {"repeats", json_array(repeats)}});
    if (r.target == TargetKind::kNumbers)
      out.insert(out.end(), {{"target_least", r.target_least},
                             {"target_most", r.target_most},
                             {"target_mean", r.target_mean},
                             {"target_std", r.target_std}});
    if (!r.columns.empty()) {
      const bool whole = parse_json_array(r.columns) && r.columns.find('\n') == std::string::npos;
      out.emplace_back("columns", whole ? JsonValue(JsonText{r.columns}) : JsonValue(r.columns));
    }
  }
  out.insert(out.end(), {{"chunks", r.chunks}, {"file_bytes", r.file_bytes}, {"identity", to_hex(r.identity)}});
  return json_line(out) + "\n";
}

}  // namespace lockstep
