// PlanComm: a communicator of one rank that has no peers. Its calls are checked and counted (bytes_sent) as elsewhere,
// and move nothing: `out` stays as it was. For plans, on a meta device. Owned by whoever plans.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace lockstep {

// Rank `rank` of `size`. A lone rank cannot ask the others for their colors, so split() takes two patterns, those of a
// grid whose rows are `group` consecutive ranks (1: no grid):
//   rank / group         the ranks of a row
//   size + rank % group  the ranks of a column
// Any other color is an error (ExitCode::kInternal). In what was split once, all ranks count as having one color.
std::unique_ptr<Communicator> make_plan_communicator(int rank, int size, int group = 1);

}  // namespace lockstep
