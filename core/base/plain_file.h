// Opens and creates files safely in directories that others may write to: only regular files are read, and a new file
// never follows a link. Plain functions; a Descriptor owns its file descriptor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& o) noexcept : number_(std::exchange(o.number_, -1)) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(number_, o.number_);
    return *this;
  }
  ~Descriptor();
  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  Descriptor duplicate() const;  // of the same file; empty, with errno set, where that fails

 private:
  int number_;
};

// A regular file, or a link to one, for reading; never waits for the writer of a FIFO. Throws ExitCode::kMissingInput
// (no such file, no permission) or kBadData (a directory, FIFO or device).
struct InputFile {
  explicit InputFile(const std::string& path);
  std::string path;
  Descriptor descriptor;
  int64_t size = 0;  // bytes, when it was opened
  // Bytes [offset, offset + count). Throws kBadData where they are not there or cannot be read.
  void read(int64_t offset, void* to, int64_t count) const;
  // All `size` bytes. Throws kBadData where there are more than `most`.
  std::string text(int64_t most) const;
};

std::string random_digits();  // 16 hexadecimal ones, which nobody can guess

// A name beside `path` that nobody can guess: "PATH.INFIX-0123456789abcdef".
std::string temporary_name(const std::string& path, std::string_view infix);

// Makes a new file for writing; one that is there already, or a link, is an error. Returns an empty Descriptor and sets
// errno where that fails.
Descriptor create_new(const std::string& path);

// Opens a file for appending, or makes it; a link in its place is refused. Returns an empty Descriptor and sets errno
// where that fails: ELOOP for a link.
Descriptor open_to_append(const std::string& path);

// Writes all of `bytes`; false with errno set where that fails.
bool write_all(const Descriptor& file, std::string_view bytes);

}  // namespace lockstep
