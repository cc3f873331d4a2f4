// StoredRows: the rows of an HDF5 dataset, for concurrent readers. The rows are held in memory if they fit, otherwise
// they are read by chunk through a bounded cache. Every chunk is checked when it is read. Owns what it reads from,
// which owns the file, while it reads by chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/partition.h"
#include "core/io/hdf5/hdf5_file.h"

namespace lockstep {

// Where rows come from: a dataset as it is stored, or made of one.
struct RowSource {
  std::string path, name;  // of the file and the dataset, for messages
  Shape shape;             // rows first
  StoredType type = StoredType::kUInt8;
  int64_t chunk_rows = 0;  // what one hash covers
  std::function<void(IndexRange rows, uint8_t* to)> read;
  std::string remedy = "restore the file or import it again";  // where a hash differs

  int64_t row_bytes() const;
};
RowSource stored_rows(std::shared_ptr<const Hdf5File> file, const std::string& name);

class StoredRows {
 public:
  // Called with each chunk's rows before they are used; throws on invalid values.
  using Check = std::function<void(IndexRange rows, const uint8_t* bytes)>;
  // `hashes`: XXH3-64 of each chunk's bytes. Throws ExitCode::kBadData naming file, dataset and rows.
  StoredRows(RowSource source, std::vector<uint64_t> hashes, int64_t memory_bytes, Check check);
  const std::string& name() const { return source_.name; }  // of the dataset
  int64_t size() const { return source_.shape[0]; }
  int64_t row_bytes() const { return row_bytes_; }
  int64_t chunk_rows() const { return source_.chunk_rows; }
  int64_t chunks() const { return static_cast<int64_t>(hashes_.size()); }
  IndexRange rows_of(int64_t chunk_index) const;

  // Calls use(rows, bytes) for the pieces that make up `rows`, in order.
  template <class Use>
  void visit(IndexRange rows, Use use) const {
    if (!all_.empty()) return use(rows, all_.data() + rows.begin * row_bytes_);
    while (!rows.empty()) {
      int64_t index = rows.begin / source_.chunk_rows, first = index * source_.chunk_rows;
      auto held = chunk(index);
      IndexRange piece{rows.begin, std::min(rows.end, first + source_.chunk_rows)};
      use(piece, held->data() + (piece.begin - first) * row_bytes_);
      rows.begin = piece.end;
    }
  }

 private:
  using Bytes = std::shared_ptr<const std::vector<uint8_t>>;
  void load(int64_t chunk_index, uint8_t* to) const;
  Bytes chunk(int64_t index) const;

  RowSource source_;
  std::vector<uint64_t> hashes_;
  Check check_;
  int64_t row_bytes_ = 0;
  std::vector<uint8_t> all_;
  // The cache: most recently used first.
  size_t cached_chunks_ = 0;
  mutable std::mutex mutex_;
  mutable std::list<std::pair<int64_t, Bytes>> recent_;
  mutable std::unordered_map<int64_t, std::list<std::pair<int64_t, Bytes>>::iterator> where_;
};

}  // namespace lockstep
