// What tells this machine from others. Stateless.
#pragma once

#include <unistd.h>

#include <fstream>
#include <string>

namespace lockstep {

inline std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

// Not for reading: one text for each running system. Virtual machines restored from one snapshot may have the same, no
// others. A name does not serve: containers of two machines may share one, and those of one machine may have several.
// Where the system does not tell, its name.
inline std::string machine_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id.empty() ? host_name() : id;
}

}  // namespace lockstep
