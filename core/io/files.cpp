#include "core/io/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/system_call.h"
#include "core/base/temporary.h"
#include "core/io/pending_file.h"
#include "core/io/write_pace.h"

namespace lockstep {

void fail_write(const std::string& path, int error_number, const char* another) {
  const bool storage = is_storage_error(error_number);
  throw Error(storage ? ExitCode::kStorage : ExitCode::kOutputLocked,
              str("cannot write ", path, ": ",
                  error_number == ELOOP ? "a symbolic link is in its place" : std::strerror(error_number),
                  storage ? "; free space or choose another " : "; choose another ", another));
}

void replace_file(const std::string& path, std::string_view text) {
  const Temporary made = make_temporary_file(path + ".tmp-");
  if (!made.lock) fail_write(path, errno);
  if (!write_all(made.lock, text)) {
    const int failed = errno;
    ::unlink(made.path.c_str());
    fail_write(path, failed);
  }
  sync_and_rename(made.path, path);
}

namespace {

bool is_written_into(const std::string& path) {
  struct stat about = {};
  return path.starts_with("/dev/") || path.starts_with("/proc/") ||
         (::stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode));
}

}  // namespace

void check_output(const std::string& path, bool replace) {
  if (!is_written_into(path)) PendingFile::check_place(path, replace);
}

void write_output(const std::string& path, std::string_view text, bool replace) {
  if (is_written_into(path)) {
    const Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY));
    if (!file || !write_all(file, text)) fail_write(path, errno, "place");
    return;
  }
  PendingFile pending(path, replace);
  const Descriptor file(::open(pending.temporary().c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file || !write_all(file, text)) fail_write(path, errno, "place");
  pending.commit();
}

void sync_and_rename(const std::string& temporary, const std::string& path) {
  int fd = ::open(temporary.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  int failed = fd < 0 || ::fsync(fd) != 0 ? errno : 0;
  if (fd >= 0) ::close(fd);
  if (!failed && ::rename(temporary.c_str(), path.c_str()) != 0) failed = errno;
  if (failed) {
    ::unlink(temporary.c_str());
    fail_write(path, failed);
  }
  // Syncing the directory makes the rename durable; some file systems do not support that, which is not an error.
  std::string folder = std::filesystem::path(path).parent_path().string();
  int dir = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir >= 0) {
    (void)::fsync(dir);
    ::close(dir);
  }
}

std::string read_head(const std::string& path, size_t limit) {
  constexpr size_t kPiece = 1 << 20;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about = {};
  if (!file || ::fstat(file.number(), &about) != 0 || !S_ISREG(about.st_mode)) return "";
  std::string out;
  for (size_t size = 0; size < limit;) {
    out.resize(std::min(limit, size + kPiece));
    const ssize_t n = ::read(file.number(), out.data() + size, out.size() - size);
    if (n > 0) size += static_cast<size_t>(n);
    out.resize(size);
    if (n == 0 || (n < 0 && errno != EINTR)) break;
  }
  return out;
}

std::optional<InputFile> open_if_there(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  return std::optional<InputFile>(std::in_place, path);
}

std::string read_some(const InputFile& file, int64_t offset, size_t most) {
  std::string out(most, '\0');
  for (;;) {
    const ssize_t n = ::pread(file.descriptor.number(), out.data(), most, offset);
    if (n < 0 && errno == EINTR) continue;
    const int failed = errno;
    require(n >= 0, ExitCode::kBadData, file.path, ": cannot be read at byte ", offset, ": ", std::strerror(failed));
    out.resize(static_cast<size_t>(n));
    return out;
  }
}

void each_line(const std::string& path, const std::function<void(const std::string&)>& use) {
  constexpr size_t kPiece = 1 << 20, kLongest = 16 << 20;
  const auto file = open_if_there(path);
  if (!file) return;
  std::string rest;
  for (int64_t at = 0;;) {
    const std::string piece = read_some(*file, at, kPiece);
    if (piece.empty()) break;
    at += static_cast<int64_t>(piece.size());
    size_t begin = 0;
    for (size_t end; (end = piece.find('\n', begin)) != std::string::npos; begin = end + 1) {
      rest.append(piece, begin, end - begin);
      use(rest);
      rest.clear();
    }
    rest.append(piece, begin);
    require(rest.size() <= kLongest, ExitCode::kBadData, path, ": has a line of more than ", kLongest, " bytes");
  }
  if (!rest.empty()) use(rest);
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail_write(path, error.value());
  if (!std::filesystem::is_directory(path, error)) fail_write(path, ENOTDIR);
}

void copy_to_new(const InputFile& from, const std::string& to, WritePace* pace) {
  constexpr int64_t kPiece = int64_t(4) << 20;  // bytes
  const Descriptor file = create_new(to);
  if (!file) fail_write(to, errno);
  std::string piece;
  for (int64_t at = 0; at < from.size; at += kPiece) {
    piece.resize(static_cast<size_t>(std::min(kPiece, from.size - at)));
    if (pace) pace->wait(static_cast<int64_t>(piece.size()), to);
    from.read(at, piece.data(), static_cast<int64_t>(piece.size()));
    if (!write_all(file, piece)) fail_write(to, errno);
  }
  sync_file(to);
}

}  // namespace lockstep
