// World: the ranks of a job: MPI processes where an MPI launcher started us, otherwise N threads of this process.
// Each is bound to its CPU or GPU before anything else. Plain functions; each rank's thread owns its communicators and
// compute stream while `body` runs.
#pragma once

#include <functional>
#include <string>

#include "comm/communicator.h"
#include "launch/world/devices.h"

namespace lockstep {

struct WorldOptions {
  int ranks = 0;        // asked for by --ranks; 0: what the launcher says, or 1
  int64_t threads = 0;  // compute threads a rank; 0: cores shared among this machine's ranks
  double deadline_s = 60;
  DeviceOptions device = {};
  // Called on the rank that failed first, before the job ends: failure.json.
  std::function<void(const Error& error, int rank)> on_failure;
};

// The size that run_world will have; throws ExitCode::kUsage where --ranks contradicts the launcher. Starts MPI under a
// launcher; ranks that do not come to it within `deadline_s` end the process.
int world_size(int asked_ranks, double deadline_s = 60);
bool is_first_process();  // rank 0's process, or the only one

// Runs body on every rank. A rank's exception ends all: its message is logged once, with rank and host; returns its
// exit code.
int run_world(const WorldOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace lockstep
