#include "launch/cluster/stack_dump.h"

#include <cxxabi.h>
#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace lockstep {
namespace {

constexpr std::string_view kBegin = "---- stack of a thread", kEnd = "---- end of the stack";
constexpr int kFrames = 48, kShown = 8;
int ask_signal() { return SIGRTMIN + 6; }

void put(std::string_view text) { (void)!::write(STDERR_FILENO, text.data(), text.size()); }

void print_stack(int skipped) {
  std::array<void*, kFrames> frames{};
  const int n = ::backtrace(frames.data(), kFrames);
  put(kBegin);
  put("\n");
  if (n > skipped) ::backtrace_symbols_fd(frames.data() + skipped, n - skipped, STDERR_FILENO);
  put(kEnd);
  put("\n");
}

void on_crash(int number) {
  put("error: ");
  put(kCrashWords);
  const char* name = ::sigabbrev_np(number);
  put("SIG");
  put(name ? name : "?");
  put("; the functions that it was in, innermost first:\n");
  print_stack(2);
  std::signal(number, SIG_DFL);
  ::raise(number);
}

void on_question(int) {
  const int error = errno;
  print_stack(2);
  errno = error;
}

// "lockstep(_ZN8lockstep6Loader4nextEv+0x1c) [0x55...]": the function's name without its arguments; "" if it has none.
std::string function_of(const std::string& line) {
  const size_t begin = line.find('('), end = line.find_first_of("+)", begin);
  if (begin == std::string::npos || end == std::string::npos || end == begin + 1) return {};
  const std::string symbol = line.substr(begin + 1, end - begin - 1);
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? plain.get() : symbol;
  if (const size_t anonymous = name.find("(anonymous namespace)::"); anonymous != std::string::npos)
    name.erase(anonymous, std::strlen("(anonymous namespace)::"));
  if (name.find("{lambda") != std::string::npos || name.starts_with("std::")) return {};
  name = name.substr(0, name.find('('));
  if (const size_t own = name.find("lockstep::"); own == 0) name.erase(0, std::strlen("lockstep::"));
  return name;
}

}  // namespace

void install_stack_dump() {
  static std::array<char, 1 << 16> alternate;  // a stack overflow has no stack left to report from
  stack_t stack{};
  stack.ss_sp = alternate.data();
  stack.ss_size = alternate.size();
  ::sigaltstack(&stack, nullptr);
  std::array<void*, 2> warm{};
  ::backtrace(warm.data(), 2);  // loads what it needs now: a handler must not
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction before = {}, action = {};
    ::sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_DFL) continue;
    action.sa_handler = on_crash;
    action.sa_flags = SA_ONSTACK;
    ::sigaction(number, &action, nullptr);
  }
  struct sigaction action = {};
  action.sa_handler = on_question;
  action.sa_flags = SA_RESTART;
  ::sigaction(ask_signal(), &action, nullptr);
}

void ask_for_stack(int64_t process, int64_t thread) {
  ::syscall(SYS_tgkill, static_cast<pid_t>(process), static_cast<pid_t>(thread), ask_signal());
}

bool StackLines::take(const std::string& line) {
  if (line.starts_with(kBegin)) {
    inside_ = true;
    complete_ = false;
    frames_.clear();
    return true;
  }
  if (!inside_) return false;
  if (line.starts_with(kEnd)) {
    inside_ = false;
    complete_ = true;
  } else {
    frames_ += line + "\n";
  }
  return true;
}

std::string StackLines::text() const {
  std::string out;
  int shown = 0;
  for (size_t at = 0; at < frames_.size() && shown < kShown;) {
    const size_t end = frames_.find('\n', at);
    const std::string name = function_of(frames_.substr(at, end - at));
    at = end + 1;
    if (name.empty()) continue;
    out += (shown++ ? " < " : "") + name;
  }
  return out;
}

}  // namespace lockstep
