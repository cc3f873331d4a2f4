// PlanComm: a communicator of one rank without peers, for `lockstep plan` on the meta device. Its calls are checked and
// counted (bytes_sent) as with other backends, but move no data: `out` is not written.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace lockstep {

// Where the ranks of a plan are.
struct PlannedMachines {
  int ranks = 0;      // of a machine, consecutive; 0: all are on one
  bool reads = true;  // do the ranks of a machine read each other's memory (Communicator::shares_memory)?
};

// The communicator of rank `rank` of `size`. There are no other ranks to ask for their colors: split() takes all to
// pass the color 0, and throws ExitCode::kInternal for any other; split_axis() gives each rank its line of the grid.
std::unique_ptr<Communicator> make_plan_communicator(int rank, int size, const PlannedMachines& machines = {});

}  // namespace lockstep
