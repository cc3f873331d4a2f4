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
#include "launch/artifacts/files.h"
#include "launch/world/fail_together.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string parent() {
  const char* place = std::getenv("TMPDIR");
  return place && *place ? place : "/tmp";
}

// Locks hold within one machine.
std::string prefix() { return cat("lockstep-prove-", host_name(), "-"); }

// A directory of ours that is open; -1 where it is none, or another user's.
int open_own(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat st = {};
  if (fd >= 0 && (::fstat(fd, &st) != 0 || st.st_uid != ::geteuid())) {
    ::close(fd);
    return -1;
  }
  return fd;
}

// Other threads may still write into it.
void remove_tree(const std::string& path) {
  std::error_code error;
  for (int attempt = 0; attempt < 100 && fs::exists(fs::symlink_status(path, error)); ++attempt)
    fs::remove_all(path, error);
}

// Those whose process is gone.
void remove_left_behind() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent(), error)) {
    if (!entry.path().filename().string().starts_with(prefix())) continue;
    const int fd = open_own(entry.path().string());
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
      remove_tree(entry.path().string());
      log_info(cat("removed ", entry.path().string(), ", which a process that was killed had left"));
    }
    ::close(fd);
  }
}

// Makes and locks a directory. Another process may take it for left behind before it is locked: then it is gone, and
// the next one is tried.
std::pair<std::string, int> make_locked() {
  for (;;) {
    std::string path = cat(parent(), "/", prefix(), "XXXXXX");
    const bool made = ::mkdtemp(path.data()) != nullptr;
    const int error = errno;
    require(made, is_storage_error(error) ? ExitCode::kStorage : ExitCode::kOutputLocked, path,
            ": no temporary directory can be made here: ", std::strerror(error),
            "; set TMPDIR to one that all ranks can write");
    const int fd = open_own(path);
    if (fd < 0 && errno == ENOENT) continue;
    require(fd >= 0, ExitCode::kOutputLocked, path, ": cannot be opened: ", std::strerror(errno));
    struct stat open = {}, named = {};
    (void)::flock(fd, LOCK_EX);  // where the file system has no locks, nobody takes it for left behind either
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

// While it lives, a signal that ends the process first removes the directory: by a thread, for a handler itself may do
// next to nothing.
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
      if (old.sa_handler == SIG_IGN) continue;  // as nohup asks
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
