#include "core/base/error.h"

#include <charconv>
#include <string>

namespace lockstep {

std::string to_text(double v) {
  char buffer[32];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr;
  return std::string(buffer, end);
}

void fail_check(const std::source_location& where, const std::string& message) {
  std::string_view file = where.file_name();
  // Show the path from the room on, not the build machine's folders.
  for (std::string_view room : {"tests/", "core/", "comm/", "sharding/", "optim/", "data/", "launch/"}) {
    auto at = file.rfind(room);
    if (at != std::string_view::npos && (at == 0 || file[at - 1] == '/')) {
      file.remove_prefix(at);
      break;
    }
  }
  throw Error(ExitCode::kInternal, str(message, " [", file, ":", where.line(), "]"));
}

}  // namespace lockstep
