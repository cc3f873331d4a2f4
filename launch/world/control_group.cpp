#include "launch/world/control_group.h"

#include <algorithm>
#include <fstream>

#include "core/base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view kRoot = "/sys/fs/cgroup";

// The first number of one of these files of a group that is there; 0: there is none.
int64_t number_in(const std::string& group, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    std::ifstream file(group + name);
    if (int64_t number = 0; file >> number) return number;
  }
  return 0;
}

// Pages of files that the group's processes can have at once.
int64_t cached_in(const std::string& group) {
  std::ifstream file(group + "/memory.stat");
  std::string key;
  for (int64_t value = 0; file >> key >> value;)
    if (key == "inactive_file") return value;
  return 0;
}

}  // namespace

std::string memory_group(int64_t process) {
  std::ifstream file(str("/proc/", process, "/cgroup"));
  std::string two, one;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) two = "/sys/fs/cgroup" + line.substr(3);
    if (const size_t at = line.find(":memory:"); at != std::string::npos)
      one = "/sys/fs/cgroup/memory" + line.substr(at + 8);
  }
  return !one.empty() ? one : two;
}

int64_t memory_kills(const std::string& group) {
  for (const char* name : {"/memory.events", "/memory.oom_control"}) {
    std::ifstream file(group + name);
    std::string key;
    for (int64_t value = 0; file >> key >> value;)
      if (key == "oom_kill") return value;
  }
  return 0;
}

int64_t memory_limit(const std::string& group) {
  for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {
    std::ifstream file(group + name);
    int64_t limit = 0;
    if (file >> limit) return limit < (int64_t{1} << 60) ? limit : 0;  // version 1 writes a huge number for none
  }
  return 0;
}

int64_t memory_left(std::string group) {
  int64_t left = -1;
  for (; group.size() > kRoot.size() && group.starts_with(kRoot); group.resize(group.rfind('/'))) {
    const int64_t limit = memory_limit(group);
    if (limit == 0) continue;
    const int64_t used = number_in(group, {"/memory.current", "/memory.usage_in_bytes"}) - cached_in(group);
    const int64_t here = std::max<int64_t>(1, limit - used);
    left = left < 0 ? here : std::min(left, here);
  }
  return left;
}

}  // namespace lockstep
