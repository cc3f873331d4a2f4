// The progress display of a training run.
#pragma once

#include "launch/training/loop/run_observer.h"

namespace lockstep {

std::unique_ptr<RunObserver> progress_observer(const RunView& run);

}  // namespace lockstep
