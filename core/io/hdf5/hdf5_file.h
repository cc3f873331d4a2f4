// HDF5 files: datasets by name, with checksummed chunks, and attributes. The one door to HDF5's C API.
// An Hdf5File owns its handles; every call goes through one process-wide mutex, so any thread may call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/partition.h"
#include "core/base/shape.h"

namespace lockstep {

// What a file may hold: all of DType, and the unsigned widths that only files use (tokens, hashes).
enum class StoredType : uint8_t {
  kFloat32,
  kBFloat16,
  kFloat16,
  kFloat64,
  kInt64,
  kInt32,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64
};
StoredType stored_as(DType type);
int64_t size_of(StoredType type);
std::string_view to_text(StoredType type);
const std::vector<StoredType>& all_stored_types();
std::string hdf5_version();  // of the library in use, "1.10.8"

struct Hdf5Layout {
  int64_t chunk_rows = 0;  // 0: about 256 KiB a chunk
  bool checksum = true;    // fletcher32: a changed chunk fails when it is read
  int deflate = 0;         // 0 = stored as is; 1..9 = byte shuffle and deflate
};

struct Hdf5Info {
  Shape shape;
  StoredType type = StoredType::kUInt8;
  int64_t chunk_rows = 0;  // 0: not chunked
  bool checksum = false;
  bool deflated = false;
};

// "Rows" are indices of the first dimension: for a flat dataset a row is an element. Memory is dense and row-major.
// Errors: ExitCode::kMissingInput (no such file), kBadData (not HDF5, truncated, failed checksum, other type or
// shape than asked for), kStorage (anything that fails while writing). Messages name file and dataset.
class Hdf5File {
 public:
  // A new file; an existing one is overwritten (write under a temporary name: core/io/pending_file.h).
  static Hdf5File create(const std::string& path);
  // For reading; goes on where the file system refuses locks. Only a regular file (or a link to one) whose contents are
  // all stored within it is opened: hard links, contiguous or chunked datasets of known types and filters, no larger
  // than the bytes stored for them (core/io/hdf5/hdf5_checks.h); kBadData otherwise. No plugin is ever loaded. The seal
  // of a file of ours is compared before HDF5 sees it; a file without one is warned of.
  static Hdf5File open(const std::string& path);
  Hdf5File(Hdf5File&&) noexcept;
  Hdf5File& operator=(Hdf5File&&) noexcept;
  // A written file must be closed by close(): the destructor gives up what is not yet on disk without a word.
  ~Hdf5File();

  // Flushes, and seals a written file (core/io/file_seal.h) unless it has reserved datasets; throws kStorage. Not
  // usable afterwards. Not an fsync.
  void close();
  const std::string& path() const;
  int64_t bytes() const;     // of a file that is read
  void forget_read() const;  // gives back the memory of chunks that were read: up to 4 MiB

  void create_dataset(const std::string& name, StoredType type, const Shape& shape, const Hdf5Layout& layout = {});
  // A contiguous dataset, not empty, whose values the caller writes into the file after close(), as they lie in memory,
  // at the bytes [begin, end) that are returned. The caller then seals the file.
  IndexRange reserve_dataset(const std::string& name, StoredType type, const Shape& shape);
  void write(const std::string& name, StoredType type, IndexRange rows, const void* data);
  // A whole dataset in one call.
  void write_all(const std::string& name, StoredType type, const Shape& shape, const void* data,
                 const Hdf5Layout& layout = {});

  bool has(const std::string& name) const;
  std::vector<std::string> list() const;  // every dataset's name, sorted; those in groups as "group/name"
  Hdf5Info info(const std::string& name) const;
  // The stored type must be `type`: nothing is converted.
  void read(const std::string& name, StoredType type, IndexRange rows, void* data) const;

  // Attributes of the dataset `object`, or of the file where it is empty.
  void set_attribute(const std::string& object, const std::string& key, int64_t value);
  void set_attribute(const std::string& object, const std::string& key, double value);
  void set_attribute(const std::string& object, const std::string& key, const std::string& value);
  void set_attribute(const std::string& object, const std::string& key, const std::vector<double>& values);
  bool has_attribute(const std::string& object, const std::string& key) const;
  int64_t int_attribute(const std::string& object, const std::string& key) const;
  double double_attribute(const std::string& object, const std::string& key) const;
  std::string string_attribute(const std::string& object, const std::string& key) const;
  std::vector<double> doubles_attribute(const std::string& object, const std::string& key) const;

 private:
  struct State;
  explicit Hdf5File(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
