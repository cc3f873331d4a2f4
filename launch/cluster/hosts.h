// Which machines a job runs on: from --hosts, a hostfile, or the batch scheduler whose allocation this is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct Host {
  std::string name;       // or an address, also of IPv6
  int slots = 1;          // ranks that it takes
  std::string user = {};  // to log in as; empty: the same as here
  std::string target() const { return user.empty() ? name : user + "@" + name; }  // as ssh takes it
  friend bool operator==(const Host&, const Host&) = default;
};

// "a:8,b:8", "a,b", "n[1-4]:8", "me@a:8", "[fd00::2]:8" or "fd00::2". Throws ExitCode::kUsage naming the part that is
// wrong; a host that is named twice is an error.
std::vector<Host> parse_hosts(std::string_view text);
// Lines "name slots=8" or "name:8" (# begins a comment). A host of several lines gets the sum of their slots, as in the
// list of nodes that PBS writes. Throws ExitCode::kMissingInput, or kUsage naming file:line.
std::vector<Host> read_hostfile(const std::string& path);
// "n[1-3,7],m2" as Slurm writes lists of nodes, and "2(x3),1" as it writes their numbers of tasks. Throw
// ExitCode::kUsage.
std::vector<std::string> expand_nodes(std::string_view text, const std::string& where = "SLURM_JOB_NODELIST");
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
// By which Open MPI knows it, which takes names and IPv4 addresses alone: "v6-fd00xx2" of "fd00::2".
std::string mpi_name(const Host& host);
bool is_this_machine(const std::string& host);
std::string other_machine(const std::vector<Host>& hosts);  // the first one that is not this; empty: there is none

}  // namespace lockstep
