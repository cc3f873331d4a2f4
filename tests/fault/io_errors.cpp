// A library to preload: file operations below a folder fail as a broken disk does. Environment: IO_ERRORS_IN names the
// folder, IO_ERRORS one of write (EIO), short (half of each write), fsync (EIO), lock (ENOSYS); IO_ERRORS_AFTER: bytes
// that are written well before.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool is_chosen(int file, const char* kind) {
  const char *folder = getenv("IO_ERRORS_IN"), *chosen = getenv("IO_ERRORS");
  if (!folder || !chosen || strcmp(kind, chosen) != 0) return false;
  char link[64], path[PATH_MAX + 1];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return false;
  path[n] = '\0';
  return strncmp(path, folder, strlen(folder)) == 0;
}

bool is_over(size_t bytes) {
  static std::atomic<long long> left{getenv("IO_ERRORS_AFTER") ? atoll(getenv("IO_ERRORS_AFTER")) : 0};
  return (left -= static_cast<long long>(bytes)) < 0;
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* data, size_t n) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  if (is_chosen(file, "write") && is_over(n)) return errno = EIO, -1;
  return real(file, data, is_chosen(file, "short") && n > 1 ? n / 2 : n);
}

ssize_t pwrite64(int file, const void* data, size_t n, off64_t at) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  if (is_chosen(file, "write") && is_over(n)) return errno = EIO, -1;
  return real(file, data, is_chosen(file, "short") && n > 1 ? n / 2 : n, at);
}
ssize_t pwrite(int file, const void* data, size_t n, off_t at) { return pwrite64(file, data, n, at); }

int flock(int file, int operation) {
  static const auto real = next<int (*)(int, int)>("flock");
  return is_chosen(file, "lock") ? (errno = ENOSYS, -1) : real(file, operation);
}

int fsync(int file) {
  static const auto real = next<int (*)(int)>("fsync");
  return is_chosen(file, "fsync") ? (errno = EIO, -1) : real(file);
}
int fdatasync(int file) {
  static const auto real = next<int (*)(int)>("fdatasync");
  return is_chosen(file, "fsync") ? (errno = EIO, -1) : real(file);
}

}  // extern "C"
