#include "launch/artifacts/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/base/system_call.h"
#include "core/base/temporary.h"

namespace lockstep {

void fail_write(const std::string& path, int error_number) {
  const bool storage = is_storage_error(error_number);
  throw Error(storage ? ExitCode::kStorage : ExitCode::kOutputLocked,
              cat("cannot write ", path, ": ",
                  error_number == ELOOP ? "a symbolic link is in its place" : std::strerror(error_number),
                  storage ? "; free space or choose another run.dir" : "; choose another run.dir"));
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
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return "";
  std::string out(limit, '\0');
  size_t size = 0;
  for (ssize_t n = 1; n > 0 && size<limit; size += n> 0 ? static_cast<size_t>(n) : 0)
    n = ::read(fd, out.data() + size, limit - size);
  ::close(fd);
  out.resize(size);
  return out;
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail_write(path, error.value());
  if (!std::filesystem::is_directory(path, error)) fail_write(path, ENOTDIR);
}

}  // namespace lockstep
