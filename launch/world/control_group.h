// The control groups that limit the memory of processes. Linux's cgroups, versions 1 and 2. Plain functions.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// The group of a process that limits its memory, as a folder; "" if there is none.
std::string memory_group(int64_t process);
// How many of the group's processes the kernel has killed for lack of memory, and its limit in bytes; 0: none.
int64_t memory_kills(const std::string& group);
int64_t memory_limit(const std::string& group);
// What the limits of the group and of those above it leave to its processes, in bytes; -1: they limit nothing.
int64_t memory_left(std::string group);

}  // namespace lockstep
