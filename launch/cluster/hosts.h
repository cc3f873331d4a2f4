// Which machines a job runs on: from --hosts, a hostfile, or the batch scheduler whose allocation this is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct Host {
  std::string name;
  int slots = 1;  // ranks that it takes
  friend bool operator==(const Host&, const Host&) = default;
};

// "a:8,b:8" or "a,b". Throws ExitCode::kUsage naming the part that is wrong; a host that is named twice is an error.
std::vector<Host> parse_hosts(std::string_view text);
// Lines "name slots=8" or "name:8" (# begins a comment). A host of several lines gets the sum of their slots, as in the
// list of nodes that PBS writes. Throws ExitCode::kMissingInput, or kUsage naming file:line.
std::vector<Host> read_hostfile(const std::string& path);
// "n[1-3,7],m2" as Slurm writes lists of nodes, and "2(x3),1" as it writes their numbers of tasks. Throw
// ExitCode::kUsage.
std::vector<std::string> expand_nodes(std::string_view text);
std::vector<int> expand_tasks(std::string_view text);

// The allocation that this process runs in.
struct Allocation {
  std::string scheduler;  // "Slurm", "PBS"; empty: none
  std::string job;
  std::vector<Host> hosts;
};
// Reads the environment. Throws where the scheduler's variables contradict each other.
Allocation current_allocation();

int total_slots(const std::vector<Host>& hosts);
std::string hosts_text(const std::vector<Host>& hosts);  // "a:8,b:8"
bool is_this_machine(const std::string& host);

}  // namespace lockstep
