#include "data/store/chunk_writer.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/hash.h"

namespace lockstep {

ChunkWriter::ChunkWriter(Hdf5File& file, std::string name, StoredType type, const Shape& shape, int64_t chunk_rows)
    : file_(file),
      name_(std::move(name)),
      type_(type),
      rows_(shape[0]),
      chunk_rows_(std::min(chunk_rows, rows_)),
      row_bytes_(rows_ > 0 ? shape.numel() / rows_ * size_of(type) : 0) {
  file_.create_dataset(name_, type_, shape, {.chunk_rows = chunk_rows_});
  pending_.reserve(static_cast<size_t>(chunk_rows_ * row_bytes_));
}

void ChunkWriter::append(const void* rows, int64_t count) {
  const uint8_t* bytes = static_cast<const uint8_t*>(rows);
  size_t chunk_bytes = static_cast<size_t>(chunk_rows_ * row_bytes_);
  for (size_t left = static_cast<size_t>(count * row_bytes_); left > 0;) {
    size_t part = std::min(left, chunk_bytes - pending_.size());
    pending_.insert(pending_.end(), bytes, bytes + part);
    bytes += part;
    left -= part;
    if (pending_.size() == chunk_bytes) flush();
  }
}

void ChunkWriter::flush() {
  int64_t rows = static_cast<int64_t>(pending_.size()) / row_bytes_;
  check(written_ + rows <= rows_, "more rows than announced for '", name_, "': ", rows_);
  file_.write(name_, type_, {written_, written_ + rows}, pending_.data());
  hashes_.push_back(hash64(pending_.data(), pending_.size()));
  written_ += rows;
  pending_.clear();
}

std::vector<uint64_t> ChunkWriter::finish() {
  if (!pending_.empty()) flush();
  check(written_ == rows_, "'", name_, "' got ", written_, " rows of ", rows_);
  return std::move(hashes_);
}

}  // namespace lockstep
