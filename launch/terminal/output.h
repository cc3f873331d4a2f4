// Standard output: what a command prints as its result.
#pragma once

#include <string>

namespace lockstep {

// Prints the result of a command to standard output, on the first process only. Since the text may contain data from
// files, control characters other than newline and tab are escaped (core/base/escape.h), unless `shown` is kAsItIs.
// Throws ExitCode::kStorage if it cannot be written.
enum class Shown { kEscaped, kAsItIs };
Shown shown_on_output();  // a text that is written as it grows: escaped on a terminal, as it is in a file
void print_out(const std::string& text, Shown shown = Shown::kEscaped);

}  // namespace lockstep
