// ChunkWriter: writes the rows of a dataset in an HDF5 file by chunk, and makes the hash of each. Borrows the file.
// Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/shape.h"
#include "core/io/hdf5/hdf5_file.h"

namespace lockstep {

// Appends rows to a dataset and hashes each full chunk.
class ChunkWriter {
 public:
  ChunkWriter(Hdf5File& file, std::string name, StoredType type, const Shape& shape, int64_t chunk_rows);
  void append(const void* rows, int64_t count);
  // Returns the chunk hashes. All rows must have been appended.
  std::vector<uint64_t> finish();

 private:
  void flush();
  Hdf5File& file_;
  std::string name_;
  StoredType type_;
  int64_t rows_, chunk_rows_, row_bytes_, written_ = 0;
  std::vector<uint8_t> pending_;
  std::vector<uint64_t> hashes_;
};

}  // namespace lockstep
