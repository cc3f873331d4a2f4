// The name of this machine. Stateless. Knows nothing of ranks.
#pragma once

#include <unistd.h>

#include <string>

namespace lockstep {

inline std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

}  // namespace lockstep
