// Stacks of threads, printed by the process itself: on a crash, and when another process asks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// What the line begins with, behind "error: ", by which a crash says so.
inline constexpr char kCrashWords[] = "this process crashed by ";

// From now on a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL) prints the signal and the stack of the thread to standard error
// before the process ends by it, and ask_for_stack() works. Handlers that are there already, such as a sanitizer's,
// stay.
void install_stack_dump();

// Makes a thread of a process that has called install_stack_dump() print its stack to its standard error.
void ask_for_stack(int64_t process, int64_t thread);

// Recognises a stack among the lines that such a process prints.
class StackLines {
 public:
  bool take(const std::string& line);  // false: the line belongs to no stack
  bool complete() const { return complete_; }
  // The innermost functions with names, e.g. "Loader::next < Trainer::start < main".
  std::string text() const;

 private:
  bool inside_ = false, complete_ = false;
  std::string frames_;
};

}  // namespace lockstep
