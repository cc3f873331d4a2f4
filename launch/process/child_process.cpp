#include "launch/process/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/base/system_call.h"

namespace lockstep {

std::string shell_line(const std::vector<std::string>& arguments) {
  std::string out;
  for (const std::string& a : arguments) {
    const bool plain = !a.empty() && std::all_of(a.begin(), a.end(), [](unsigned char c) {
      return std::isalnum(c) || std::strchr("-_=.,:/@%+", c) != nullptr;
    });
    std::string quoted = a;
    if (!plain) {
      quoted = "'";
      for (char c : a) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
      quoted += "'";
    }
    out += str(out.empty() ? "" : " ", quoted);
  }
  return out;
}

pid_t start_child(const ChildStart& c) {
  std::vector<char*> arguments;
  for (const std::string& a : c.command) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  const pid_t self = ::getpid(), child = ::fork();
  require_done(child >= 0, ExitCode::kDevice, "cannot start ", c.command[0]);
  if (child > 0) {
    if (c.own_group) ::setpgid(child, child);
    return child;
  }
  if (c.own_group) ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, c.end_with_parent);
  if (::getppid() != self) ::_exit(static_cast<int>(ExitCode::kRankLost));
  for (int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) std::signal(s, SIG_DFL);
  sigset_t blocked;
  sigemptyset(&blocked);
  if (c.blocked) sigaddset(&blocked, c.blocked);
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  for (const auto& [name, value] : c.environment) ::setenv(name.c_str(), value.c_str(), 1);
  for (int descriptor : c.kept) ::fcntl(descriptor, F_SETFD, 0);
  ::dup2(c.input >= 0 ? c.input : ::open("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(c.output, STDOUT_FILENO);
  ::dup2(c.errors, STDERR_FILENO);
  ::execvp(arguments[0], arguments.data());
  const int error = errno;
  const std::string why = str("error: cannot start ", c.command[0], ": ", std::strerror(error), "\n");
  (void)!::write(STDERR_FILENO, why.data(), why.size());
  ::_exit(error == ENOENT ? static_cast<int>(ExitCode::kMissingInput) : 126);
}

std::pair<Descriptor, Descriptor> make_pipe() {
  std::array<int, 2> ends{};
  require_done(::pipe2(ends.data(), O_CLOEXEC) == 0, ExitCode::kDevice, "cannot make a pipe");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::string run_and_capture(const std::vector<std::string>& command, int& code) {
  FILE* pipe = ::popen((shell_line(command) + " 2>&1 </dev/null").c_str(), "r");
  require_done(pipe != nullptr, ExitCode::kDevice, "cannot start ", command[0]);
  std::string out;
  std::array<char, 4096> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
}

}  // namespace lockstep
