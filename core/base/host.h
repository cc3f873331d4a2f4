// Identifies the machine. Stateless.
#pragma once

#include <unistd.h>

#include <fstream>
#include <string>

namespace lockstep {

inline std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

// An opaque identifier of the running system (its boot id), shared by the containers on it, unlike host names, which
// may differ within a machine and agree between machines. Virtual machines restored from one snapshot may share it. The
// host name if the system has no boot id.
inline std::string machine_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id.empty() ? host_name() : id;
}

}  // namespace lockstep
