#include "launch/cluster/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include "core/base/plain_file.h"
#include "core/base/system_call.h"
#include "core/base/temporary.h"
#include "launch/process/child_process.h"
#include "launch/process/control.h"

namespace lockstep {
namespace {

// Seconds after the launcher's end, and the signal that mpirun gets then. It needs up to 1.5 s to end its ranks. A
// second SIGINT within 5 s makes Open MPI exit at once.
constexpr std::array<std::pair<double, int>, 3> kRequests{{{0, SIGINT}, {3, SIGINT}, {4.5, SIGKILL}}};

constexpr char kShielded[] = "--shielded";

// Ends this process as `status` says that another one ended.
int end_alike(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int number = WTERMSIG(status);
  ::prctl(PR_SET_DUMPABLE, 0);  // no core file of this process
  std::signal(number, SIG_DFL);
  ::kill(::getpid(), number);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  return 128 + number;
}

}  // namespace

std::vector<std::string> keeper_words(const KeeperOptions& o) {
  std::vector<std::string> out{"agent", "--keep"};
  if (o.shielded) out.emplace_back(kShielded);
  out.insert(out.end(), o.folders.begin(), o.folders.end());
  out.emplace_back("--");
  out.insert(out.end(), o.command.begin(), o.command.end());
  return out;
}

KeeperOptions keeper_options(const std::vector<std::string>& given) {
  KeeperOptions o;
  auto at = given.begin();
  o.shielded = at != given.end() && *at == kShielded;
  if (o.shielded) ++at;
  for (; at != given.end() && (*at)[0] == '/'; ++at) o.folders.push_back(*at);
  require(given.end() - at >= 2 && *at == "--", ExitCode::kUsage,
          "`lockstep agent` is started by `lockstep launch` only");
  o.command.assign(at + 1, given.end());
  return o;
}

int run_keeper(const KeeperOptions& o) {
  sigset_t all, child_ends;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  sigemptyset(&child_ends);
  sigaddset(&child_ends, SIGCHLD);
  const Descriptor ends(::signalfd(-1, &child_ends, SFD_CLOEXEC | SFD_NONBLOCK));
  require_done(bool{ends}, ExitCode::kDevice, "cannot watch ", o.command[0]);
  const pid_t mpirun = start_child({.command = o.command,
                                    .output = STDOUT_FILENO,
                                    .errors = STDERR_FILENO,
                                    .end_with_parent = SIGKILL,
                                    .blocked = o.shielded ? SIGTERM : 0,
                                    .own_group = false});
  // The launcher sees the end of mpirun at once, by the end of its output.
  const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  for (int output : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere.number(), output);
  double gone = -1;  // since when the launcher is
  size_t requests = 0;
  int status = 0;
  while (::waitpid(mpirun, &status, WNOHANG) != mpirun) {
    const double now = steady_now();
    if (gone >= 0 && requests < kRequests.size() && now - gone >= kRequests[requests].first)
      ::kill(mpirun, kRequests[requests++].second);
    const bool asks = gone >= 0 && requests < kRequests.size();
    const double wait = asks ? std::max(0.0, gone + kRequests[requests].first - now) : -1;
    std::array<pollfd, 2> news{{{ends.number(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
    ::poll(news.data(), gone < 0 ? 2 : 1, asks ? static_cast<int>(1e3 * wait) + 1 : -1);
    signalfd_siginfo ignored;
    while (::read(ends.number(), &ignored, sizeof ignored) > 0) continue;
    if (gone < 0 && news[1].revents != 0) gone = steady_now();
  }
  if (gone < 0) return end_alike(status);
  for (const std::string& folder : o.folders) remove_tree(folder);
  if (::getpgrp() == ::getpid()) ::kill(0, SIGKILL);  // what mpirun started and left, such as remote shells
  return end_alike(status);
}

}  // namespace lockstep
