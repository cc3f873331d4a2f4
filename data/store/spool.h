// Spool: bytes in a file that grows while an import runs, hashed by chunk, so that only what was written is read back.
// Owns the file. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/hash.h"
#include "core/base/plain_file.h"

namespace lockstep {

// The hashes of a stream's chunks, one behind the other as text; of the last one as far as the stream goes.
class ChunkHashes {
 public:
  static constexpr size_t kChunk = 4 << 20;  // bytes

  void add(const void* bytes, size_t count);
  std::string text() const;

 private:
  std::string whole_;
  std::unique_ptr<Hasher128> last_;
  size_t filled_ = 0;  // bytes of the last chunk
};
// The first byte of the first chunk whose hashes differ; -1: all are equal.
int64_t first_difference(const std::string& hashes, const std::string& others);

// Throws ExitCode::kStorage where the file cannot be made, written or read.
class Spool {
 public:
  explicit Spool(std::string path);  // makes the file anew
  // The file's first `size` bytes are kept, where they have these hashes. Throws ExitCode::kBadData where they do not.
  Spool(std::string path, int64_t size, const std::string& hashes);
  static Spool unnamed(const std::string& beside);  // it goes with the process
  void append(const void* bytes, size_t count);
  void flush();
  void sync();  // flush, and to the disk
  int descriptor() const { return file_.number(); }
  int64_t size() const { return size_ + static_cast<int64_t>(pending_.size()); }
  // Of what was flushed: ChunkHashes::text(), and the bytes [offset, offset + count), which are not compared with it.
  std::string hashes() const { return hashes_.text(); }
  void read(int64_t offset, void* to, size_t count) const;
  const std::string& path() const { return path_; }

 private:
  Spool(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_, pending_;
  Descriptor file_;
  int64_t size_ = 0;  // flushed
  ChunkHashes hashes_;
};

// Reads a spool, all of it flushed, from its beginning to its end.
class SpoolReader {
 public:
  explicit SpoolReader(const Spool& spool) : spool_(spool) {}
  void next(void* to, size_t count);
  // To be called behind the last byte, before anything is made of what was read. Throws ExitCode::kBadData where that
  // is not what was written.
  void finish() const;

 private:
  const Spool& spool_;
  int64_t at_ = 0;
  ChunkHashes hashes_;
};

}  // namespace lockstep
