#include "data/stored_rows.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/hash.h"

namespace lockstep {
namespace {
constexpr int64_t kMostChunkBytes = int64_t{1} << 28;  // the size of the largest image that can be imported
}  // namespace

StoredRows::StoredRows(std::shared_ptr<const Hdf5File> file, std::string name, std::vector<uint64_t> hashes,
                       int64_t memory_bytes, Check check)
    : file_(std::move(file)),
      path_(file_->path()),
      name_(std::move(name)),
      hashes_(std::move(hashes)),
      check_(std::move(check)),
      info_(file_->info(name_)) {
  row_bytes_ = size_of(info_.type);
  for (int i = 1; i < info_.shape.rank(); ++i) row_bytes_ *= info_.shape[i];
  require(info_.chunk_rows > 0 && row_bytes_ > 0, ExitCode::kBadData, path_, ": dataset '", name_,
          "' is empty or not stored in chunks");
  require(row_bytes_ <= kMostChunkBytes && info_.chunk_rows <= kMostChunkBytes / row_bytes_, ExitCode::kBadData, path_,
          ": dataset '", name_, "' has chunks of ", info_.chunk_rows, " rows of ", row_bytes_,
          " bytes; a chunk may have at most ", kMostChunkBytes >> 20, " MiB");
  int64_t chunks = ceil_div(size(), info_.chunk_rows);
  require(static_cast<int64_t>(hashes_.size()) == chunks, ExitCode::kBadData, path_, ": dataset '", name_, "' has ",
          chunks, " chunks, but there are ", hashes_.size(), " chunk hashes");
  if (size() <= memory_bytes / row_bytes_) {
    all_.resize(static_cast<size_t>(size() * row_bytes_));
    for (int64_t i = 0; i < chunks; ++i) load(i, all_.data() + rows_of(i).begin * row_bytes_);
    file_.reset();
  } else {
    cached_chunks_ = static_cast<size_t>(std::max<int64_t>(2, memory_bytes / (info_.chunk_rows * row_bytes_)));
  }
}

Range StoredRows::rows_of(int64_t chunk_index) const {
  int64_t first = chunk_index * info_.chunk_rows;
  return {first, std::min(first + info_.chunk_rows, size())};
}

void StoredRows::load(int64_t chunk_index, uint8_t* to) const {
  Range rows = rows_of(chunk_index);
  file_->read(name_, info_.type, rows, to);
  require(hash64(to, static_cast<size_t>(rows.size() * row_bytes_)) == hashes_[static_cast<size_t>(chunk_index)],
          ExitCode::kBadData, path_, ": dataset '", name_, "', rows [", rows.begin, ", ", rows.end,
          "): hash differs: its bytes changed after they were written; restore the file or import it again");
  check_(rows, to);
}

StoredRows::Bytes StoredRows::chunk(int64_t index) const {
  {
    std::lock_guard lock(mutex_);
    if (auto it = where_.find(index); it != where_.end()) {
      recent_.splice(recent_.begin(), recent_, it->second);
      return it->second->second;
    }
  }
  // Two threads may load the same chunk at the same time; the second copy is dropped.
  auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(rows_of(index).size() * row_bytes_));
  load(index, bytes->data());
  std::lock_guard lock(mutex_);
  if (auto it = where_.find(index); it != where_.end()) return it->second->second;
  recent_.emplace_front(index, bytes);
  where_[index] = recent_.begin();
  if (recent_.size() > cached_chunks_) {
    where_.erase(recent_.back().first);
    recent_.pop_back();
  }
  return bytes;
}

}  // namespace lockstep
