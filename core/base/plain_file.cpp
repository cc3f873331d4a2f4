#include "core/base/plain_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>

#include "core/base/system_call.h"

namespace lockstep {

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Descriptor Descriptor::duplicate() const { return Descriptor(::fcntl(number_, F_DUPFD_CLOEXEC, 0)); }

InputFile::InputFile(const std::string& name) : path(name) {
  // Without O_NONBLOCK a FIFO would be waited for.
  descriptor = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  require_done(bool{descriptor}, ExitCode::kMissingInput, path);
  struct stat about {};
  const bool known = ::fstat(descriptor.number(), &about) == 0;
  require(known && S_ISREG(about.st_mode), ExitCode::kBadData, path, ": is not a file");
  size = about.st_size;
}

void InputFile::read(int64_t offset, void* to, int64_t count) const {
  char* at = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor.number(), at, static_cast<size_t>(count), offset);
    if (got < 0 && errno == EINTR) continue;
    require_done(got >= 0, ExitCode::kBadData, path, ": cannot be read at byte ", offset);
    require(got > 0, ExitCode::kBadData, path, ": is truncated: it ends at byte ", offset);
    at += got;
    offset += got;
    count -= got;
  }
}

std::string InputFile::text(int64_t most) const {
  require(size <= most, ExitCode::kBadData, path, ": has ", size, " bytes, more than ", most);
  std::string out(static_cast<size_t>(size), '\0');
  read(0, out.data(), size);
  return out;
}

std::string random_digits() {
  uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) {
    std::random_device device;
    bits = uint64_t{device()} << 32 | device();
  }
  std::string digits(16, '0');
  for (char& digit : digits) {
    digit = "0123456789abcdef"[bits & 15];
    bits >>= 4;
  }
  return digits;
}

std::string temporary_name(const std::string& path, std::string_view infix) {
  return str(path, ".", infix, "-", random_digits());
}

Descriptor create_new(const std::string& path) {
  return Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
}

Descriptor open_to_append(const std::string& path) {
  return Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
}

bool write_all(const Descriptor& file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.number(), bytes.data(), bytes.size());
    if (n >= 0) bytes.remove_prefix(static_cast<size_t>(n));
    else if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace lockstep
