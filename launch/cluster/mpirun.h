// Composes the mpirun command that starts a job. Open MPI 4 and 5.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/cluster/hosts.h"

namespace lockstep {

struct MpirunOptions {
  std::string program = "mpirun";
  int version = 4;  // Open MPI's major version
  int ranks = 1;
  std::vector<Host> hosts;       // empty: this machine alone
  std::string interface;         // of the network between hosts, e.g. "eth0"; empty: Open MPI chooses
  std::string remote_shell;      // in place of ssh; empty: ssh, or the scheduler's own way
  std::string own;               // this program, which is in place of the remote shell where that is needed
  std::string binding = "none";  // "none", "core", "numa", "socket"
  // Starts a program that does not get SIGTERM: a scheduler that ends a job sends it to all processes, and ranks need
  // Open MPI's for as long as they save. Empty: none is needed.
  std::string shield;
  bool crowded = false;               // more ranks than cores on a machine
  std::vector<std::string> exported;  // names of variables that remote ranks get too
  std::vector<std::string> command;   // what each rank runs
};

// The arguments, the program first.
std::vector<std::string> mpirun_arguments(const MpirunOptions& options);

// Open MPI's major version. Throws ExitCode::kMissingInput if there is no such program, kUsage if it is not Open MPI.
int mpirun_version(const std::string& program);

// Does the machine answer, and let this user in? Waits at most 5 seconds. A line for the shell that ends with 0 if so;
// and what it says.
std::string question_to(const Host& host, const std::string& remote_shell);
bool answers(const Host& host, const std::string& remote_shell);

// Open MPI takes no users and no IPv6 addresses: where hosts have them, its remote shell is `lockstep agent --reach`,
// which finds here, in its environment, the shell and the hosts by mpi_name(). Empty: not needed.
std::string reach_table(const MpirunOptions& options);
inline constexpr char kReachTable[] = "LOCKSTEP_REACH";

// What mpirun's own messages come to: in one sentence of ours, or its first words; empty: it said nothing.
std::string mpirun_complaint(const std::string& output);

}  // namespace lockstep
