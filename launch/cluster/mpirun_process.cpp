#include "launch/cluster/mpirun_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "core/base/error.h"
#include "core/base/log.h"
#include "launch/cluster/keeper.h"
#include "launch/process/child_process.h"
#include "launch/process/control.h"

namespace lockstep {

MpirunProcess::MpirunProcess(const MpirunOptions& options, std::vector<std::pair<std::string, std::string>> environment,
                             bool verbose)
    : verbose_(verbose) {
  KeeperOptions keeper{.shielded = !options.shield.empty(), .command = mpirun_arguments(options)};
  std::vector<int> locks;
  if (other_machine(options.hosts).empty()) {
    folders_ = std::make_unique<MpiFolders>();
    keeper.folders = folders_->paths();
    locks = folders_->locks();
    environment.insert(environment.end(), folders_->environment().begin(), folders_->environment().end());
  }
  std::vector<std::string> command = keeper_words(keeper);
  command.insert(command.begin(), options.own);
  auto [reads, writes] = make_pipe();
  auto [sees, launcher] = make_pipe();
  keeper_ = start_child({.command = command,
                         .output = writes.number(),
                         .errors = writes.number(),
                         .end_with_parent = 0,
                         .environment = environment,
                         .blocked = SIGTERM,
                         .input = sees.number(),
                         .kept = locks});
  output_ = std::move(reads);
  launcher_ = std::move(launcher);
}

void MpirunProcess::look() {
  std::array<char, 4096> buffer;
  while (output_) {
    const ssize_t n = ::read(output_.number(), buffer.data(), buffer.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (n <= 0) {
      output_ = Descriptor();
      break;
    }
    if (verbose_) log_info(str("mpirun: ", std::string_view(buffer.data(), static_cast<size_t>(n))));
    if (text_.size() < (1 << 20)) text_.append(buffer.data(), static_cast<size_t>(n));
  }
  int status = 0;
  if (keeper_ < 0 || ::waitpid(keeper_, &status, WNOHANG) != keeper_) return;
  keeper_ = -1;
  ended_ = steady_now();
  const char* name = WIFSIGNALED(status) ? ::sigabbrev_np(WTERMSIG(status)) : nullptr;
  end_ = WIFSIGNALED(status) ? str("was killed by ", name ? str("SIG", name) : str("signal ", WTERMSIG(status)))
                             : str("ended with exit code ", WEXITSTATUS(status));
}

void MpirunProcess::kill() {
  if (keeper_ < 0) return;
  ::kill(-keeper_, SIGKILL);
  ::waitpid(keeper_, nullptr, 0);
  keeper_ = -1;
}

}  // namespace lockstep
