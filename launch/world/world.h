// World: starts the ranks of a job. If an MPI launcher started this process, it is one rank; otherwise N ranks run as
// threads of this process. Each rank's device is chosen first. Each rank's thread owns its communicators and compute
// stream while `body` runs.
#pragma once

#include <functional>
#include <string>

#include "comm/communicator.h"
#include "launch/world/devices.h"

namespace lockstep {

struct WorldOptions {
  int ranks = 0;        // the value of --ranks; 0: as many as the launcher started, or 1
  int64_t threads = 0;  // compute threads per rank; 0: this machine's cores divided by its ranks
  double deadline_s = 60;
  DeviceOptions device = {};
  // Called on the rank that failed first, by the thread that ran its body, before the job ends; writes failure.json.
  std::function<void(const Error& error, int rank)> on_failure;
};

// The number of ranks that run_world will run. Throws ExitCode::kUsage if --ranks contradicts the launcher. Under a
// launcher it starts MPI, and ends the process if not all ranks start MPI within `deadline_s` seconds.
int world_size(int asked_ranks, double deadline_s = 60);
bool is_first_process();  // rank 0's process, or the only one

// Runs `body` on every rank. An exception on one rank ends all ranks; its message is logged once, with rank and host.
// Returns its exit code, or 0.
int run_world(const WorldOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace lockstep
