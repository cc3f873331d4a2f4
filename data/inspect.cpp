#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "core/io/json.h"
#include "data/dataset_file.h"
#include "data/import.h"

namespace lockstep {

namespace {

constexpr int64_t kMostCompared = 1 << 25;  // records, so that their hashes take 256 MiB at most

void inspect_records(const DatasetFile& file, DatasetReport& report) {
  const RecordsHeader& h = file.header.records;
  report.records = h.count;
  report.chunks += static_cast<int64_t>(h.end_hashes.size() + h.target_hashes.size());
  std::map<int64_t, int64_t> lengths;  // how many have each
  std::vector<uint64_t> hashes;
  const bool compares = h.count <= kMostCompared;
  const int64_t width = file.rows->row_bytes();
  visit_records(file, [&](Range tokens) {
    ++lengths[tokens.size()];
    if (!compares) return;
    Hasher128 hasher;
    file.rows->visit(tokens, [&](Range piece, const uint8_t* bytes) {
      hasher.update(bytes, static_cast<size_t>(piece.size() * width));
    });
    hashes.push_back(hasher.digest().low);
  });
  std::sort(hashes.begin(), hashes.end());
  report.duplicates = static_cast<int64_t>(hashes.end() - std::unique(hashes.begin(), hashes.end()));
  if (!lengths.empty()) {
    report.shortest = lengths.begin()->first, report.longest = lengths.rbegin()->first;
    int64_t below = 0;
    for (auto at = lengths.begin(); below <= h.count / 2; ++at) below += at->second, report.median = at->first;
  }
  report.targets = file.targets ? 0 : file.header.tokens;
  if (file.targets)
    file.targets->visit({0, file.targets->size()}, [&](Range piece, const uint8_t* bytes) {
      report.targets += std::count(bytes, bytes + piece.size(), 1);
    });
}

// Marks the ids of a chunk.
void mark_used(const uint8_t* bytes, int64_t count, int64_t width, std::vector<bool>& used) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t id = 0;
    std::memcpy(&id, bytes + i * width, static_cast<size_t>(width));  // little-endian
    used[id] = true;
  }
}

}  // namespace

DatasetReport inspect_dataset(const std::string& path, const ProgressCallback& progress) {
  // The memory limit is small: reading all rows once through the cache checks every chunk of a file of any size.
  auto file = open_dataset_file(path, 16 << 20);
  const DatasetHeader& h = file->header;
  const StoredRows& rows = *file->rows;
  int64_t step = rows.info().chunk_rows;
  DatasetReport report;
  std::vector<bool> used(static_cast<size_t>(h.kind == DataKind::kTokens ? h.vocabulary_size : 0));
  for (int64_t at = 0; at < rows.size(); at += step) {
    Range piece{at, std::min(rows.size(), at + step)};
    rows.visit(piece, [&](Range part, const uint8_t* bytes) {
      if (h.kind == DataKind::kTokens) mark_used(bytes, part.size(), rows.row_bytes(), used);
    });
    if (progress) progress(piece.end, rows.size());
  }
  report.kind = h.kind;
  report.count = h.kind == DataKind::kTokens ? rows.size() : h.images[0];
  report.identity = h.identity;
  report.chunks = static_cast<int64_t>(h.hashes.size() + h.label_hashes.size() + h.end_hashes.size());
  std::error_code ignored;
  report.file_bytes = static_cast<int64_t>(std::filesystem::file_size(path, ignored));
  if (h.kind == DataKind::kTokens) {
    report.level = h.level();
    report.used = std::count(used.begin(), used.end(), true);
    inspect_records(*file, report);
    report.vocabulary = h.vocabulary_size;
    if (h.vocabulary)
      for (uint32_t c : h.vocabulary->code_points()) report.characters += to_utf8(c);
  } else {
    for (int i = 1; i < h.images.rank(); ++i) report.image_shape.push_back(h.images[i]);
    report.columns = h.columns;
    report.mean = h.mean;
    report.stddev = h.stddev;
  }
  report.classes = h.classes;
  report.class_names = h.class_names;
  report.per_class.resize(static_cast<size_t>(h.classes));
  for (int32_t label : file->labels) ++report.per_class[static_cast<size_t>(label)];
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

}  // namespace

std::string to_text(const DatasetReport& r) {
  std::string out;
  if (r.kind == DataKind::kTokens) {
    out += cat("kind: tokens\nlevel: ", r.level, "\ntokens: ", r.count, "\nvocabulary: ", r.vocabulary,
               "\nused: ", r.used, "\n");
    if (r.records > 0)
      out += cat("records: ", r.records, " of ", r.shortest, " to ", r.longest, " tokens, median ", r.median,
                 "\nduplicates: ", r.records > kMostCompared ? "not counted" : cat(r.duplicates),
                 "\ntargets: ", r.targets, "\n");
    if (r.classes > 0)
      out += cat("classes: ", r.classes, "\nrecords per class: ", joined(counts_by_class(r), 20), "\n");
    if (!r.characters.empty()) out += cat("characters: ", escaped(r.characters, Lines::kEscape), "\n");
  } else if (r.kind == DataKind::kTable) {
    out += cat("kind: table\nrows: ", r.count, "\nfeatures: ", r.image_shape[0], "\nclasses: ", r.classes,
               "\nrows per class: ", joined(counts_by_class(r), 20), "\nmean: ", joined(r.mean, 16),
               "\nstd: ", joined(r.stddev, 16), "\n");
    if (!r.columns.empty()) out += cat("columns: ", escaped(r.columns, Lines::kEscape), "\n");
  } else {
    const bool mixed = r.image_shape[0] == 0;
    out += cat("kind: images\nimages: ", r.count, "\nshape (height, width, channels): ",
               mixed ? cat("mixed sizes, ", r.image_shape[2], " channels") : to_text(r.image_shape),
               "\nclasses: ", r.classes, "\nimages per class: ", joined(counts_by_class(r), 20),
               "\nmean: ", joined(r.mean, 16), "\nstd: ", joined(r.stddev, 16), "\n");
  }
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
                             {"duplicates", r.records > kMostCompared ? JsonValue(nullptr) : JsonValue(r.duplicates)},
                             {"targets", r.targets}});
    if (r.classes > 0)
      out.insert(
          out.end(),
          {{"classes", r.classes}, {"records_per_class", list(r.per_class)}, {"class_names", list(r.class_names)}});
    if (!r.characters.empty()) out.emplace_back("characters", r.characters);
  } else {
    const bool table = r.kind == DataKind::kTable;
    out = {{"kind", table ? "table" : "images"},
           {table ? "rows" : "images", r.count},
           {"shape", list(r.image_shape)},
           {"classes", r.classes},
           {table ? "rows_per_class" : "images_per_class", list(r.per_class)},
           {"class_names", list(r.class_names)},
           {"mean", list(r.mean)},
           {"std", list(r.stddev)}};
    if (!r.columns.empty()) {
      const bool whole = parse_json_array(r.columns) && r.columns.find('\n') == std::string::npos;
      out.emplace_back("columns", whole ? JsonValue(JsonText{r.columns}) : JsonValue(r.columns));
    }
  }
  out.insert(out.end(), {{"chunks", r.chunks}, {"file_bytes", r.file_bytes}, {"identity", to_hex(r.identity)}});
  return json_line(out) + "\n";
}

}  // namespace lockstep
