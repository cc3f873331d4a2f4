// The one HDF5 layout of datasets (data/FORMAT.md): its header, read and checked, and its chunks, hashed as written.
// DatasetHeader is a plain value; a ChunkWriter borrows its file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/base/shape.h"
#include "core/io/hdf5_file.h"
#include "data/dataset.h"
#include "data/stored_rows.h"
#include "data/vocabulary.h"

namespace lockstep {

enum class DataKind : uint8_t { kTokens, kImages };

constexpr int64_t kDatasetVersion = 1;
// Labels or ids a file may announce, unless it stores more images or tokens than that: memory is taken for each.
constexpr int64_t kMostClasses = 1 << 21;

struct DatasetHeader {
  DataKind kind = DataKind::kTokens;
  std::vector<uint64_t> hashes;  // XXH3-64 of each chunk of /tokens or /images
  Hash128 identity;
  // Tokens.
  int64_t tokens = 0;
  int64_t vocabulary_size = 0;
  std::unique_ptr<Vocabulary> vocabulary;  // none at level "ids"
  // Images.
  Shape images;  // [count, height, width, channels]
  int64_t classes = 0;
  std::vector<double> mean, stddev;  // per channel, of values scaled to [0, 1]
  std::vector<uint64_t> label_hashes;

  std::string level() const { return vocabulary ? std::string(to_text(vocabulary->level())) : "ids"; }
  Hash128 computed_identity() const;
};

// Throws ExitCode::kBadData: no dataset of ours, another version, header or hashes damaged.
DatasetHeader read_dataset_header(const Hdf5File& file);
// Sets header.identity.
void write_dataset_header(Hdf5File& file, DatasetHeader& header);

// The smallest type for the ids of a vocabulary.
StoredType token_type(int64_t vocabulary_size);
int64_t tokens_per_chunk();
int64_t images_per_chunk(int64_t image_bytes);

// Appends rows to a dataset and hashes each full chunk.
class ChunkWriter {
 public:
  ChunkWriter(Hdf5File& file, std::string name, StoredType type, const Shape& shape, int64_t chunk_rows);
  void append(const void* rows, int64_t count);
  // All rows must have come. The chunk hashes.
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

// A file opened and checked: header, and rows that name index and value where a token or label is out of range.
struct DatasetFile {
  std::string path;
  DatasetHeader header;
  std::unique_ptr<StoredRows> rows;  // /tokens or /images
  std::vector<int32_t> labels;       // images only
};
std::shared_ptr<const DatasetFile> open_dataset_file(const std::string& path, int64_t memory_bytes);

}  // namespace lockstep
