#include "launch/terminal/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "launch/world/world.h"

namespace lockstep {

Shown shown_on_output() { return ::isatty(STDOUT_FILENO) == 1 ? Shown::kEscaped : Shown::kAsItIs; }

void print_out(const std::string& given, Shown shown) {
  if (!is_first_process()) return;
  const std::string text = shown == Shown::kEscaped ? escaped(given) : given;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return;
  const int error = errno;
  throw Error(ExitCode::kStorage, str("the result cannot be written to standard output: ", std::strerror(error)));
}

}  // namespace lockstep
