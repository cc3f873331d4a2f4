// Room on the disk for the checkpoints that a run will save. A plain function.
#pragma once

#include <cstdint>

#include "launch/config/settings.h"

namespace lockstep {

// Throws ExitCode::kStorage where the file system of run.dir, which need not exist yet, has less room than the
// checkpoints that the run will add after step `done` take, each of `bytes`. What the directory holds already counts.
void require_checkpoint_space(const Settings& settings, int64_t done, int64_t bytes);

}  // namespace lockstep
