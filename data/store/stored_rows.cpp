#include "data/store/stored_rows.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/hash.h"

namespace lockstep {
namespace {
constexpr int64_t kMostChunkBytes = int64_t{1} << 28;  // the size of the largest image that can be imported
}  // namespace

int64_t RowSource::row_bytes() const {
  int64_t bytes = size_of(type);
  for (int i = 1; i < shape.rank(); ++i) bytes *= shape[i];
  return bytes;
}

RowSource stored_rows(std::shared_ptr<const Hdf5File> file, const std::string& name) {
  const Hdf5Info info = file->info(name);
  RowSource out{file->path(), name, info.shape, info.type, info.chunk_rows, {}};
  out.read = [file = std::move(file), name, type = info.type](IndexRange rows, uint8_t* to) {
    file->read(name, type, rows, to);
  };
  return out;
}

StoredRows::StoredRows(RowSource source, std::vector<uint64_t> hashes, int64_t memory_bytes, Check check)
    : source_(std::move(source)),
      hashes_(std::move(hashes)),
      check_(std::move(check)),
      row_bytes_(source_.row_bytes()) {
  const int64_t chunk_rows = source_.chunk_rows;
  require(chunk_rows > 0 && row_bytes_ > 0, ExitCode::kBadData, source_.path, ": dataset '", source_.name,
          "' is empty or not stored in chunks");
  require(row_bytes_ <= kMostChunkBytes && chunk_rows <= kMostChunkBytes / row_bytes_, ExitCode::kBadData, source_.path,
          ": dataset '", source_.name, "' has chunks of ", chunk_rows, " rows of ", row_bytes_,
          " bytes; a chunk may have at most ", kMostChunkBytes >> 20, " MiB");
  const int64_t count = ceil_div(size(), chunk_rows);
  require(chunks() == count, ExitCode::kBadData, source_.path, ": dataset '", source_.name, "' has ", count,
          " chunks, but there are ", chunks(), " chunk hashes");
  if (size() <= memory_bytes / row_bytes_) {
    all_.resize(static_cast<size_t>(size() * row_bytes_));
    for (int64_t i = 0; i < count; ++i) load(i, all_.data() + rows_of(i).begin * row_bytes_);
    source_.read = nullptr;  // and the file with it
  } else {
    cached_chunks_ = static_cast<size_t>(std::max<int64_t>(2, memory_bytes / (chunk_rows * row_bytes_)));
  }
}

IndexRange StoredRows::rows_of(int64_t chunk_index) const {
  int64_t first = chunk_index * source_.chunk_rows;
  return {first, std::min(first + source_.chunk_rows, size())};
}

void StoredRows::load(int64_t chunk_index, uint8_t* to) const {
  IndexRange rows = rows_of(chunk_index);
  source_.read(rows, to);
  require(hash64(to, static_cast<size_t>(rows.size() * row_bytes_)) == hashes_[static_cast<size_t>(chunk_index)],
          ExitCode::kBadData, source_.path, ": dataset '", source_.name, "', rows [", rows.begin, ", ", rows.end,
          "): hash differs: its bytes changed after they were written; ", source_.remedy);
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
