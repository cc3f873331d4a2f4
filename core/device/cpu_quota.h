// The processor time that the control groups of this process allow it (containers: docker --cpus, Kubernetes' limits).
#pragma once

#include <string>

namespace lockstep {

// Processors' worth of time, the least of this process's group and those above it, of either version of control groups;
// infinity where there is no limit, or none can be read. `membership`: as /proc/self/cgroup; `root`: where groups lie.
double cpu_quota(const std::string& membership = "/proc/self/cgroup", const std::string& root = "/sys/fs/cgroup");

}  // namespace lockstep
