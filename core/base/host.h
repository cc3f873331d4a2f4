// Identifies the machine and this program. Stateless.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
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

// Tells machines apart where one of both does: containers with names of their own count as machines.
inline std::string machine_name() { return machine_id() + " " + host_name(); }

// The path of this program, by which it is started again. Where its own loader runs it, as in the archives of
// scripts/package, the kernel knows that loader alone, and the script that started it says its own path in
// LOCKSTEP_PROGRAM. Empty if the system does not say.
inline std::string program_path() {
  std::string path(4096, '\0');
  const ssize_t n = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(n > 0 ? static_cast<size_t>(n) : 0);
  const char* script = std::getenv("LOCKSTEP_PROGRAM");
  return script && path.find("/ld-", path.rfind('/')) != std::string::npos ? script : path;
}

// Seconds since the start of this process; 0 if the system does not say.
inline double process_age() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  const size_t after_name = text.rfind(')');
  if (after_name == std::string::npos) return 0;
  // starttime is field 22; the name is field 2.
  size_t at = after_name + 2;
  for (int field = 3; field < 22; ++field) at = text.find(' ', at) + 1;
  double now = 0;
  uptime >> now;
  return now - static_cast<double>(std::stoll(text.substr(at))) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace lockstep
