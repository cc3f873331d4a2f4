// How much room a run's checkpoints will need. Plain functions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/io/checkpoint.h"

namespace lockstep {

// The steps after which a run saves: multiples of `every` (0: none) after `done`, and `last`.
struct PlannedSaves {
  int64_t done = 0, last = 0, every = 0;
};

// The most checkpoints that lie on the disk at a time beyond those of the steps `there`: the kept ones, and the one
// that is being written, which is whole before an older one goes.
int64_t most_added_checkpoints(const PlannedSaves& planned, std::vector<int64_t> there, const Retention& retention);

}  // namespace lockstep
