// InputStream: one input of an import, read from begin to end: a file or standard input, plain or compressed by gzip or
// Zstandard, which its first bytes tell. Memory is bounded whatever the input holds. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/base/plain_file.h"
#include "core/io/deflate.h"

namespace lockstep {

class InputStream {
 public:
  // `path`: a regular file (or a link to one), or "-" for standard input. Throws ExitCode::kMissingInput; kBadData for
  // what is no file, or is compressed by Zstandard in a build without it.
  // `name`: for messages; empty: the path.
  explicit InputStream(const std::string& path, const std::string& name = {});
  ~InputStream();
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  // The next bytes, up to `room`; 0 at the end. Throws ExitCode::kBadData where the compressed data is truncated or
  // damaged, has other bytes behind it, or expands to more than 500 times its size (a decompression bomb).
  size_t read(void* to, size_t room);
  // XXH3-128 of the bytes that read() has given. An input that is read in several passes is compared by it: between
  // them another program may have replaced the file.
  Hash128 hash() const { return hasher_.digest(); }
  // Passes over the next bytes, without reading them where the input is a plain file. Throws kBadData where it ends
  // before.
  void skip(int64_t bytes);
  const std::string& name() const { return name_; }  // for messages
  bool compressed() const { return decoder_ != nullptr; }
  int64_t size() const { return size_; }    // bytes as stored; 0: not known
  int64_t taken() const { return taken_; }  // of them so far

 private:
  size_t fill();  // stored_, once it is used up; the bytes it got
  size_t next(uint8_t* out, size_t room);

  std::string name_;
  Descriptor descriptor_;
  int64_t size_ = 0, taken_ = 0, made_ = 0;
  std::vector<uint8_t> stored_;
  size_t begin_ = 0, end_ = 0;  // of what is left in stored_
  std::unique_ptr<Decompressor> decoder_;
  const char* format_ = "";
  bool between_ = true;  // of two compressed streams
  Hasher128 hasher_;
};

// data/import/zstd_decoder.cpp, or data/import/zstd_absent.cpp in a build without the package: null.
std::unique_ptr<Decompressor> zstd_decoder();

}  // namespace lockstep
