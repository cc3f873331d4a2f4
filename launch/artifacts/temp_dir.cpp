#include "launch/artifacts/temp_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "core/base/host.h"
#include "core/base/log.h"
#include "core/base/plain_file.h"
#include "launch/artifacts/files.h"
#include "launch/world/fail_together.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string parent() {
  const char* place = std::getenv("TMPDIR");
  return place && *place ? place : "/tmp";
}

// The host name is part of the directory's name, since locks work within one machine only.
std::string prefix() { return cat("lockstep-prove-", host_name(), "-"); }

// Opens a directory of this user; -1 if it is not a directory, or belongs to another user.
int open_own(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat st = {};
  if (fd >= 0 && (::fstat(fd, &st) != 0 || st.st_uid != ::geteuid())) {
    ::close(fd);
    return -1;
  }
  return fd;
}

// Repeated, since other threads may still write into it.
void remove_tree(const std::string& path) {
  std::error_code error;
  for (int attempt = 0; attempt < 100 && fs::exists(fs::symlink_status(path, error)); ++attempt)
    fs::remove_all(path, error);
}

// Removes directories whose process has ended.
void remove_left_behind() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent(), error)) {
    if (!entry.path().filename().string().starts_with(prefix())) continue;
    const int fd = open_own(entry.path().string());
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
      remove_tree(entry.path().string());
      log_info(cat("removed ", entry.path().string(), ", left by a process that was killed"));
    }
    ::close(fd);
  }
}

// Creates and locks a directory. Another process may remove it as abandoned before it is locked; then the next name is
// tried.
std::pair<std::string, int> make_locked() {
  for (;;) {
    std::string path = cat(parent(), "/", prefix(), "XXXXXX");
    const bool made = ::mkdtemp(path.data()) != nullptr;
    const int error = errno;
    require(made, is_storage_error(error) ? ExitCode::kStorage : ExitCode::kOutputLocked, path,
            ": cannot create a temporary directory here: ", std::strerror(error),
            "; set TMPDIR to one that all ranks can write");
    const int fd = open_own(path);
    if (fd < 0 && errno == ENOENT) continue;
    require(fd >= 0, ExitCode::kOutputLocked, path, ": cannot be opened: ", std::strerror(errno));
    struct stat open = {}, named = {};
    (void)::flock(fd, LOCK_EX);  // if the file system has no locks, no process removes it either
    if (::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino) return {path, fd};
    ::close(fd);
  }
}

std::atomic<int> signal_pipe{-1};  // where the handler writes the signal's number

void on_signal(int number) {
  const int before = errno;
  const auto byte = static_cast<unsigned char>(number);
  (void)!::write(signal_pipe, &byte, 1);
  errno = before;
}

}  // namespace

// While an object of this class exists, a signal that ends the process first removes the directory. A thread does that,
// since a signal handler may call only few functions.
class TempDir::SignalWatch {
 public:
  explicit SignalWatch(const std::string& path) {
    require(::pipe2(pipe_, O_CLOEXEC) == 0, ExitCode::kInternal, "a pipe for signals: ", std::strerror(errno));
    signal_pipe = pipe_[1];
    thread_ = std::thread([this, path] {
      unsigned char number = 0;
      ssize_t got;
      do got = ::read(pipe_[0], &number, 1);
      while (got < 0 && errno == EINTR);
      if (got != 1 || number == 0) return;
      remove_tree(path);
      std::signal(number, SIG_DFL);
      ::kill(::getpid(), number);
    });
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    for (int number : {SIGTERM, SIGINT, SIGHUP}) {
      struct sigaction old = {};
      ::sigaction(number, nullptr, &old);
      if (old.sa_handler == SIG_IGN) continue;  // ignored before, as under nohup: keep it so
      ::sigaction(number, &action, &old);
      before_[number] = old;
    }
  }
  SignalWatch(const SignalWatch&) = delete;
  ~SignalWatch() {
    for (auto& [number, old] : before_) ::sigaction(number, &old, nullptr);
    const unsigned char end = 0;
    (void)!::write(pipe_[1], &end, 1);
    thread_.join();
    signal_pipe = -1;
    for (int fd : pipe_) ::close(fd);
  }

 private:
  int pipe_[2] = {-1, -1};
  std::map<int, struct sigaction> before_;
  std::thread thread_;
};

void require_temporary_folder() {
  constexpr size_t kNeeded = 256 << 10;  // bytes: Open MPI's files of a job take a quarter of that
  const std::string place = parent();
  const auto fail = [&](int error) {
    const bool full = is_storage_error(error);
    throw Error(full ? ExitCode::kStorage : ExitCode::kOutputLocked,
                cat("the temporary folder ", place, " on ", host_name(), " cannot be written: ", std::strerror(error),
                    full ? "; free space" : "; make it", ", or set TMPDIR to another"));
  };
  std::error_code error;
  if (!fs::is_directory(place, error)) fail(error ? error.value() : fs::exists(place, error) ? ENOTDIR : ENOENT);
  const std::string name = temporary_name(place + "/lockstep", "probe");
  const Descriptor file = create_new(name);
  if (!file) fail(errno);
  ::unlink(name.c_str());
  if (!write_all(file, std::string(kNeeded, '\0'))) fail(errno);
}

TempDir::TempDir(Communicator& comm) {
  fail_together(comm, [&] {
    if (comm.rank() != 0) return;
    remove_left_behind();
    std::tie(path_, lock_) = make_locked();
    watch_ = std::make_unique<SignalWatch>(path_);
  });
  path_ = broadcast_text(comm, path_, 0, "temporary directory");
}

TempDir::~TempDir() {
  if (lock_ < 0) return;
  remove_tree(path_);
  watch_.reset();
  ::close(lock_);
}

}  // namespace lockstep
