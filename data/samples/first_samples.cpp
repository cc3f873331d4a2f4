// The first samples of a dataset file, which has grown since, as the file that held no others.
#include <algorithm>

#include "core/base/error.h"
#include "data/samples/dataset_file.h"
#include "data/samples/header_parts.h"

namespace lockstep {
namespace {

// The hashes of the chunks that `count` rows are written in: those that are stored already, where a chunk is one of the
// file's, and others computed.
std::vector<uint64_t> hashes_of_first(const StoredRows& rows, const std::vector<uint64_t>& stored, int64_t count,
                                      int64_t chunk_rows) {
  chunk_rows = std::min(chunk_rows, count);
  std::vector<uint64_t> out;
  for (int64_t begin = 0; begin < count; begin += chunk_rows) {
    const Range chunk{begin, std::min(count, begin + chunk_rows)};
    if (rows.chunk_rows() == chunk_rows && chunk.size() == chunk_rows) {
      out.push_back(stored[out.size()]);
      continue;
    }
    std::vector<uint8_t> bytes;
    rows.visit(chunk, [&](Range piece, const uint8_t* from) {
      bytes.insert(bytes.end(), from, from + piece.size() * rows.row_bytes());
    });
    out.push_back(hash64(bytes.data(), bytes.size()));
  }
  return out;
}

// Of a list in memory, whose rows have `width` values.
template <class T>
std::vector<uint64_t> hashes_of(const std::vector<T>& list, int64_t width = 1) {
  std::vector<uint64_t> out;
  const auto step = static_cast<size_t>(std::min(tokens_per_chunk() * width, static_cast<int64_t>(list.size())));
  for (size_t at = 0; at < list.size(); at += step)
    out.push_back(hash64(list.data() + at, std::min(step, list.size() - at) * sizeof(T)));
  return out;
}

bool all_ones(const StoredRows& rows, int64_t count) {
  bool out = true;
  rows.visit({0, count}, [&](Range piece, const uint8_t* bytes) {
    out &= std::find(bytes, bytes + piece.size(), 0) == bytes + piece.size();
  });
  return out;
}

void cut_labels(DatasetFile& file, int64_t samples) {
  file.labels.resize(static_cast<size_t>(samples));
  file.header.label_hashes = hashes_of(file.labels);
}

void cut_targets(DatasetFile& file, int64_t samples) {
  DatasetHeader& h = file.header;
  if (h.target == TargetKind::kLabels) return cut_labels(file, samples);
  if (h.target == TargetKind::kNumbers) {
    file.numbers.resize(static_cast<size_t>(samples));
    h.label_hashes = hashes_of(file.numbers);
    return;
  }
  const int64_t rows = h.target_ends.empty() ? samples : part_of(h.target_ends, samples - 1).end;
  if (!h.target_ends.empty()) {
    h.target_ends.resize(static_cast<size_t>(samples));
    h.target_end_hashes = hashes_of(h.target_ends);
  }
  if (h.target == TargetKind::kMasks) {
    h.label_hashes = hashes_of_first(*file.masks, h.label_hashes, rows, mask_rows_per_chunk(h));
  } else {
    file.boxes.resize(static_cast<size_t>(rows * kBoxValues));
    h.label_hashes = hashes_of(file.boxes, kBoxValues);
  }
}

void cut_text(DatasetFile& file, int64_t samples) {
  DatasetHeader& h = file.header;
  h.tokens = samples;
  if (file.record_ends) {
    const int64_t records = records_of(h, {0, samples}).end;
    visit_records(file, {records - 1, records}, [&](Range tokens) { h.tokens = tokens.end; });
    h.records.end_hashes = hashes_of_first(*file.record_ends, h.records.end_hashes, records, tokens_per_chunk());
    h.records.count = records;
  }
  if (h.records.labelled) cut_labels(file, samples);
  h.hashes = hashes_of_first(*file.rows, h.hashes, h.tokens, rows_per_chunk(h));
  if (file.targets && all_ones(*file.targets, h.tokens)) {  // then nobody stores them
    file.targets.reset();
    h.records.target_hashes.clear();
  } else if (file.targets) {
    h.records.target_hashes = hashes_of_first(*file.targets, h.records.target_hashes, h.tokens, tokens_per_chunk());
  }
}

void cut_labelled(DatasetFile& file, int64_t samples) {
  DatasetHeader& h = file.header;
  const int64_t rows = h.encoded ? part_of(h.ends, samples - 1).end : samples;
  h.hashes = hashes_of_first(*file.rows, h.hashes, rows, rows_per_chunk(h));
  h.images[0] = samples;
  cut_targets(file, samples);
  if (!h.encoded) return;
  h.ends.resize(static_cast<size_t>(samples));
  h.end_hashes = hashes_of(h.ends);
}

}  // namespace

std::shared_ptr<DatasetFile> open_first_samples(const std::string& path, int64_t memory_bytes, int64_t samples) {
  const auto file = open_dataset_file(path, memory_bytes);
  const int64_t there = sample_count(file->header);
  require(samples > 0 && samples <= there, ExitCode::kBadData, path, ": has ", there, " samples, not ", samples);
  file->header.kind == DataKind::kTokens ? cut_text(*file, samples) : cut_labelled(*file, samples);
  file->header.identity = file->header.computed_identity();
  return file;
}

}  // namespace lockstep
