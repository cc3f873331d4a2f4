#include "launch/world/temp_dir.h"

#include <fcntl.h>
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
#include "core/base/system_call.h"
#include "core/base/temporary.h"
#include "core/io/files.h"
#include "launch/world/fail_together.h"

namespace lockstep {
namespace {

// The host name is part of the directory's name, since locks work within one machine only.
std::string prefix() { return str(temporary_place(), "/lockstep-prove-", host_name(), "-"); }

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
    require_done(::pipe2(pipe_, O_CLOEXEC) == 0, ExitCode::kInternal, "a pipe for signals");
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

std::string temporary_place() {
  const char* place = std::getenv("TMPDIR");
  return place && *place ? place : "/tmp";
}

void require_temporary_folder() {
  constexpr size_t kNeeded = 256 << 10;  // bytes: Open MPI's files of a job take a quarter of that
  const std::string place = temporary_place();
  const auto fail = [&](int error) {
    const bool full = is_storage_error(error);
    throw Error(full ? ExitCode::kStorage : ExitCode::kOutputLocked,
                str("the temporary folder ", place, " on ", host_name(), " cannot be written: ", std::strerror(error),
                    full              ? "; free space there"
                    : error == ENOENT ? "; create it"
                                      : "; make it a folder that you can write",
                    ", or set TMPDIR to another folder"));
  };
  std::error_code error;
  if (!std::filesystem::is_directory(place, error))
    fail(error ? error.value() : std::filesystem::exists(place, error) ? ENOTDIR : ENOENT);
  const Temporary probe = make_temporary_file(place + "/lockstep-probe-");
  if (!probe.lock) fail(errno);
  ::unlink(probe.path.c_str());
  if (!write_all(probe.lock, std::string(kNeeded, '\0'))) fail(errno);
}

TempDir::TempDir(Communicator& comm) {
  fail_together(comm, [&] {
    if (comm.rank() != 0) return;
    Temporary made = make_temporary_folder(prefix(), 0700);
    const int error = errno;
    require(bool{made.lock}, is_storage_error(error) ? ExitCode::kStorage : ExitCode::kOutputLocked, made.path,
            ": cannot create a temporary directory here: ", std::strerror(error),
            "; set TMPDIR to one that all ranks can write");
    path_ = std::move(made.path);
    lock_ = std::move(made.lock);
    watch_ = std::make_unique<SignalWatch>(path_);
  });
  path_ = broadcast_text(comm, path_, 0, "temporary directory");
}

TempDir::~TempDir() {
  if (!lock_) return;
  remove_tree(path_);
  watch_.reset();
}

}  // namespace lockstep
