// Computes how many checkpoints a run will add to the disk.
#pragma once

#include <cstdint>
#include <vector>

#include "core/io/checkpoint.h"

namespace lockstep {

// The steps after which a run saves: multiples of `every` (0: none) after `done`, and `last`.
struct PlannedSaves {
  int64_t done = 0, last = 0, every = 0;
};

// The largest number of checkpoints on the disk at any time, beyond those of the steps in `there`. It includes the one
// that is being written: older ones are removed only after it is complete.
int64_t most_added_checkpoints(const PlannedSaves& planned, std::vector<int64_t> there, const Retention& retention);

}  // namespace lockstep
