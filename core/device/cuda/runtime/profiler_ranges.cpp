// The door to NVTX: names on a profiler's timeline.
#include <nvtx3/nvToolsExt.h>

#include "core/device/cuda/runtime/queue.h"

namespace lockstep {

void CudaQueue::begin_profiler_range(const char* name) { nvtxRangePushA(name); }
void CudaQueue::end_profiler_range() { nvtxRangePop(); }

}  // namespace lockstep
