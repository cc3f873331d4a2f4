#include "data/samples/inspect.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "core/io/json.h"
#include "data/samples/report_parts.h"
#include "data/samples/sample_kind.h"

namespace lockstep {

namespace {

void inspect_weights(const std::vector<float>& weights, DatasetReport& report) {
  if (weights.empty()) return;
  const auto [least, most] = std::minmax_element(weights.begin(), weights.end());
  report.weighted = true;
  report.weight_least = *least, report.weight_most = *most;
  report.weight_mean = std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(weights.size());
}

std::string weights_text(const DatasetReport& r) {
  if (!r.weighted) return "";
  return str("sample weights: ", r.weight_least, " to ", r.weight_most, ", mean ", r.weight_mean, "\n");
}

}  // namespace

DatasetReport inspect_dataset(const std::string& path, const InspectProgress& progress) {
  // Reading all rows once through the cache, whose memory is small, checks every chunk of a file of any size.
  const auto file = open_dataset_file(path, 16 << 20);
  const DatasetHeader& h = file->header;
  DatasetReport report;
  report.kind = h.kind;
  report.identity = h.identity;
  const SampleKind& kind = sample_kind(h.kind);
  report.chunks = static_cast<int64_t>(h.hashes.size());
  for (const StoredList& list : kind.lists(h)) report.chunks += static_cast<int64_t>(list.hashes->size());
  std::error_code ignored;
  report.file_bytes = static_cast<int64_t>(std::filesystem::file_size(path, ignored));
  report.classes = h.classes;
  report.class_names = h.class_names;
  report.per_class.resize(static_cast<size_t>(h.classes));
  for (int32_t label : file->labels) ++report.per_class[static_cast<size_t>(label)];
  inspect_weights(file->weights, report);
  ProgressCallback counted;
  if (progress)
    counted = [&, unit = h.kind == DataKind::kTokens ? std::string("tokens") : kind.words().samples](
                  int64_t done, int64_t total) { progress(done, total, unit); };
  kind.inspect(*file, report, counted);
  return report;
}

std::vector<std::string> counts_by_class(const DatasetReport& r) {
  std::vector<std::string> out;
  for (size_t i = 0; i < r.per_class.size(); ++i)
    out.push_back(r.class_names.empty() ? str(r.per_class[i])
                                        : str(r.per_class[i], " (", escaped(r.class_names[i], Lines::kEscape), ")"));
  return out;
}

std::string duplicates_text(const DatasetReport& r) {
  if (r.duplicates < 0) return "duplicates: not counted";
  std::string out = str("duplicates: ", r.duplicates);
  if (r.contradictions > 0) out += str(", of which ", r.contradictions, " with another target");
  for (size_t i = 0; i < r.repeats.size(); ++i)
    out += str(i ? ", " : ": ", r.repeats[i].first, " (as ", r.repeats[i].second, ")");
  return out + (r.duplicates > static_cast<int64_t>(r.repeats.size()) && !r.repeats.empty() ? ", ..." : "");
}

JsonValue duplicates_json(const DatasetReport& r) {
  return r.duplicates < 0 ? JsonValue(nullptr) : JsonValue(r.duplicates);
}

std::string to_text(const DatasetReport& r) {
  return str(sample_kind(r.kind).text(r), weights_text(r), "chunks: ", r.chunks,
             ", all whole\nfile size: ", r.file_bytes, " bytes\nidentity: ", r.identity, "\n");
}

std::string to_json(const DatasetReport& r) {
  JsonObject out = sample_kind(r.kind).json(r);
  if (r.weighted)
    out.insert(out.end(),
               {{"weight_least", r.weight_least}, {"weight_most", r.weight_most}, {"weight_mean", r.weight_mean}});
  out.insert(out.end(), {{"chunks", r.chunks}, {"file_bytes", r.file_bytes}, {"identity", to_hex(r.identity)}});
  return json_line(out) + "\n";
}

}  // namespace lockstep
