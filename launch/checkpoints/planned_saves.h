// Computes how many checkpoints a run will add to the disk.
#pragma once

#include <cstdint>
#include <vector>

#include "core/state/checkpoint.h"

namespace lockstep {

// The steps after which a run saves: multiples of `every` (0: none) after `done`, and `last`; and perhaps multiples of
// `best_every` (0: none), whose evaluations may find a new best for keep_best. `any`: also after steps that are not
// known beforehand (checkpoint.every_minutes).
struct PlannedSaves {
  int64_t done = 0, last = 0, every = 0;
  bool any = false;
  int64_t best_every = 0;
};

// The largest number of checkpoints on the disk at any time, beyond those of the steps in `there`. It includes the one
// that is being written: older ones are removed only after it is complete. With `any` or keep_best, which depend on
// time and on losses, an upper bound; but where all are kept (keep_last 0), or for ever (keep_every), those of unknown
// steps are not counted.
int64_t most_added_checkpoints(const PlannedSaves& planned, std::vector<int64_t> there, const Retention& retention);

}  // namespace lockstep
