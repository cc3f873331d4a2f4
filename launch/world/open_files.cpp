#include "launch/world/open_files.h"

#include <sys/resource.h>

#include <algorithm>

#include "core/base/error.h"

namespace lockstep {

int64_t require_open_files(int64_t needed, std::string_view what) {
  constexpr rlim_t kMost = 1 << 30;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return needed;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const auto allowed = static_cast<int64_t>(std::min(limit.rlim_cur, kMost));
  require(allowed >= needed, ExitCode::kDevice, "a process may have only ", allowed, " open files here, and ", what,
          " ", needed, " are needed: raise `ulimit -n`");
  return allowed;
}

}  // namespace lockstep
