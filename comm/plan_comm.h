// PlanComm: a communicator of one rank without peers, for `lockstep plan` on the meta device. Its calls are checked and
// counted (bytes_sent) as with other backends, but move no data: `out` is not written.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace lockstep {

// The communicator of rank `rank` of `size`. There are no other ranks to ask for their colors, so split() accepts only
// two patterns, the rows and columns of a grid whose rows are `group` consecutive ranks (1: no grid):
//   rank / group         the ranks of a row
//   size + rank % group  the ranks of a column
// Any other color is an error (ExitCode::kInternal). When a communicator that split() returned is split again, all its
// ranks are assumed to pass the same color. `reads`: what shares_memory() says.
std::unique_ptr<Communicator> make_plan_communicator(int rank, int size, int group = 1, bool reads = true);

}  // namespace lockstep
