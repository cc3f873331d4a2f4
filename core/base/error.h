// Errors: one exception type, which carries the exit code of the process, and check() and require(), which throw it.
// Code that catches an Error to add to its message or to clean up rethrows it; the running command (launch/run) turns
// it into a message and the exit code.
#pragma once

#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace lockstep {

// Exit codes; values follow sysexits.h where it has one.
enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,
  kUsage = 64,
  kBadData = 65,
  kMissingInput = 66,
  kDevice = 67,
  kRankLost = 69,
  kNumeric = 70,
  kOutputLocked = 73,
  kStorage = 74,
  kSaved = 75,
  kRanksDisagree = 76,
  kConfig = 78,
};

// What each means, in the order of their values: the manual page prints this, and docs/command-line.md says more.
struct ExitCodeMeaning {
  ExitCode code;
  std::string_view meaning;
};
inline constexpr ExitCodeMeaning kExitCodes[] = {
    {ExitCode::kOk, "done"},
    {ExitCode::kInternal, "a bug in Lockstep or in a user's model; checkpoint diff: the states differ"},
    {ExitCode::kUsage, "wrong command line"},
    {ExitCode::kBadData, "a file that is there but wrong: dataset, checkpoint"},
    {ExitCode::kMissingInput, "a file that is not there"},
    {ExitCode::kDevice,
     "a GPU that was asked for cannot be used; memory ran out, a GPU's or the host's; the system gives no more "
     "threads"},
    {ExitCode::kRankLost, "a rank died, hangs, or missed a deadline"},
    {ExitCode::kNumeric,
     "non-finite gradients several times in a row, or a value that is not finite in anomaly mode; prove: the runs "
     "differ"},
    {ExitCode::kOutputLocked, "the run directory cannot be used for output"},
    {ExitCode::kStorage, "disk full, I/O error while writing"},
    {ExitCode::kSaved, "stopped on request after saving: start it again with --resume"},
    {ExitCode::kRanksDisagree,
     "ranks differ in version, configuration, model or data, or hold different values (verify.every)"},
    {ExitCode::kConfig, "configuration: the YAML file or an override"},
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string message) : std::runtime_error(std::move(message)), code_(code) {}
  // A secondary error: another rank failed, and reports the cause; this rank only ends too. It is thrown like any other
  // and sets the exit code, but is not reported.
  static Error secondary(ExitCode code, std::string message = "another rank failed, and reports why") {
    Error error(code, std::move(message));
    error.secondary_ = true;
    return error;
  }
  ExitCode code() const { return code_; }
  bool is_secondary() const { return secondary_; }
  // The same error in other words.
  Error with_message(std::string message) const {
    return secondary_ ? secondary(code_, std::move(message)) : Error(code_, std::move(message));
  }

 private:
  ExitCode code_;
  bool secondary_ = false;
};

// Text of a value; types of ours provide an overload found by argument-dependent lookup.
inline std::string_view to_text(std::string_view s) { return s; }
inline std::string_view to_text(const char* s) { return s; }
inline const std::string& to_text(const std::string& s) { return s; }
inline std::string_view to_text(bool b) { return b ? "true" : "false"; }
std::string to_text(double v);  // shortest form that reads back the same
template <class T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) std::string to_text(T v) { return std::to_string(v); }
inline std::string to_text(float v) { return to_text(static_cast<double>(v)); }

// str("a ", 3, " b") == "a 3 b"
template <class... Parts>
std::string str(const Parts&... parts) {
  std::string out;
  (out.append(to_text(parts)), ...);
  return out;
}

// The implicit conversion captures the caller's place, so that check() needs no macro.
struct Condition {
  bool holds;
  std::source_location where;
  Condition(bool holds_in, std::source_location where_in = std::source_location::current())
      : holds(holds_in), where(where_in) {}
};

[[noreturn]] void fail_check(const std::source_location& where, const std::string& message);

// A broken contract inside the program or a user's model: ExitCode::kInternal with file:line.
template <class... Parts>
void check(Condition condition, const Parts&... parts) {
  if (!condition.holds) [[unlikely]]
    fail_check(condition.where, str(parts...));
}

// Bad input from outside: the message names file and key itself.
template <class... Parts>
void require(bool holds, ExitCode code, const Parts&... parts) {
  if (!holds) [[unlikely]]
    throw Error(code, str(parts...));
}

// Checked narrowing, for arguments of libraries.
template <class To, class From>
To narrow(From value) {
  check(std::in_range<To>(value), "value ", value, " does not fit its narrower type");
  return static_cast<To>(value);
}

}  // namespace lockstep
