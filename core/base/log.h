// Log lines of one rank: to standard error, and to a file once a run directory exists. The door to spdlog.
// Owned by the process; thread-ranks share it and are told apart by their prefix.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Control characters within a line are shown escaped (core/base/escape.h): a message may quote what a file holds.
void log(LogLevel level, std::string_view line);
inline void log_debug(std::string_view line) { log(LogLevel::kDebug, line); }
inline void log_info(std::string_view line) { log(LogLevel::kInfo, line); }
inline void log_warning(std::string_view line) { log(LogLevel::kWarning, line); }
inline void log_error(std::string_view line) { log(LogLevel::kError, line); }

// A warning that the process gives once, however often and from however many threads it is called with this line.
void log_warning_once(const std::string& line);

// Lines below `level` are dropped on the terminal (default kInfo); the file takes all.
void set_log_level(LogLevel level);

// The calling thread's lines begin with this, e.g. "rank 2"; empty means none.
void set_log_prefix(std::string prefix);
const std::string& log_prefix();

// Appends every line to this file too. Throws ExitCode::kOutputLocked where it cannot be opened or is a link.
// A file that cannot be written later (disk full) never stops the run: lines are dropped and counted.
void open_log_file(const std::string& path);
void close_log_file();

// Called before (true) and after (false) a line goes to the terminal, so that a progress bar can step aside.
void set_log_listener(std::function<void(bool before)> listener);

}  // namespace lockstep
