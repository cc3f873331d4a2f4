#include "data/samples/records.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/samples/header_parts.h"

namespace lockstep {

RecordsHeader read_records_header(const Hdf5File& file, int64_t tokens) {
  RecordsHeader out;
  if (!file.has("record_ends")) return out;
  const Hdf5Info ends = file.info("record_ends");
  require(ends.type == StoredType::kInt64 && ends.shape.rank() == 1 && ends.shape[0] > 0 && ends.shape[0] <= tokens,
          ExitCode::kBadData, file.path(), ": dataset 'record_ends' holds ", ends.type, " of shape ", ends.shape,
          "; expected a list of int64, at most one for each of ", tokens, " tokens");
  out.count = ends.shape[0];
  out.end_hashes = read_hashes(file, "record_ends");
  out.labelled = file.has("labels");
  out.paired = file.has_attribute("", "pairs");
  if (out.paired) {
    const int64_t pairs = file.int_attribute("", "pairs");
    require(pairs == 1, ExitCode::kBadData, file.path(), ": attribute 'pairs' is ", pairs, "; expected 1");
    require(out.count % 2 == 0, ExitCode::kBadData, file.path(), ": attribute 'pairs' is set, but ", out.count,
            " records are no pairs");
    require(!out.labelled, ExitCode::kBadData, file.path(), ": attribute 'pairs' is set, but its records have labels");
  }
  if (!file.has("targets")) return out;
  const Hdf5Info targets = file.info("targets");
  require(targets.type == StoredType::kUInt8 && targets.shape == Shape{tokens}, ExitCode::kBadData, file.path(),
          ": dataset 'targets' holds ", targets.type, " of shape ", targets.shape, "; expected uint8 [", tokens, "]");
  out.target_hashes = read_hashes(file, "targets");
  return out;
}

void open_records(const std::shared_ptr<const Hdf5File>& file, int64_t memory_bytes, DatasetFile& out) {
  const RecordsHeader& records = out.header.records;
  if (records.count == 0) return;
  auto check_ends = [path = out.path, last = records.count - 1, tokens = out.header.tokens](IndexRange rows,
                                                                                            const uint8_t* bytes) {
    const auto* ends = reinterpret_cast<const int64_t*>(bytes);
    int64_t before = rows.begin;  // no record is empty, so record i ends beyond token i
    for (int64_t i = 0; i < rows.size(); before = ends[i++])
      require(ends[i] > before && ends[i] <= tokens && (rows.begin + i < last || ends[i] == tokens), ExitCode::kBadData,
              path, ": record ", rows.begin + i, " ends at token ", ends[i],
              ", which does not follow the record before it or is not the end of ", tokens, " tokens");
  };
  out.record_ends =
      std::make_unique<StoredRows>(stored_rows(file, "record_ends"), records.end_hashes, memory_bytes / 4, check_ends);
  if (records.target_hashes.empty()) return;
  auto check_targets = [path = out.path](IndexRange rows, const uint8_t* bytes) {
    const auto* at = std::find_if(bytes, bytes + rows.size(), [](uint8_t t) { return t > 1; });
    require(at == bytes + rows.size(), ExitCode::kBadData, path, ": the target mark of token ",
            rows.begin + (at - bytes), " is neither 0 nor 1");
  };
  out.targets = std::make_unique<StoredRows>(stored_rows(file, "targets"), records.target_hashes, memory_bytes / 2,
                                             check_targets);
}

void visit_records(const DatasetFile& file, const std::function<void(IndexRange tokens)>& use) {
  visit_records(file, {0, file.header.records.count}, use);
}

void visit_records(const DatasetFile& file, IndexRange records, const std::function<void(IndexRange tokens)>& use) {
  if (records.empty()) return;
  int64_t begin = 0;
  if (records.begin > 0)
    file.record_ends->visit({records.begin - 1, records.begin}, [&](IndexRange, const uint8_t* bytes) {
      begin = *reinterpret_cast<const int64_t*>(bytes);
    });
  file.record_ends->visit(records, [&](IndexRange rows, const uint8_t* bytes) {
    const auto* ends = reinterpret_cast<const int64_t*>(bytes);
    for (int64_t i = 0; i < rows.size(); begin = ends[i++]) {
      require(ends[i] > begin, ExitCode::kBadData, file.path, ": record ", rows.begin + i, " ends at token ", ends[i],
              ", but the one before it ends at ", begin);
      use({begin, ends[i]});
    }
  });
}

IndexRange records_of(const DatasetHeader& h, IndexRange samples) {
  const int64_t each = h.records.paired ? 2 : 1;
  return {samples.begin * each, samples.end * each};
}

}  // namespace lockstep
