// The outputs of a global batch, of whose samples each rank has a part, and what a loss over all of them makes of these
// (GlobalBatchTask in core/tasks/task.h). Plain functions and values; the same bits at every number of ranks and shard
// level.
#pragma once

#include <functional>

#include "core/tasks/task.h"
#include "data/streams/loader.h"
#include "sharding/data_parallel.h"

namespace lockstep {

// The outputs of all samples, fp32 [N, D], in their order, on every rank. `output` makes those of a micro-batch, [B,
// D]; `micro`: samples of one. Collective, outside of steps: the first of the two passes.
Tensor outputs_of_all(DataParallel& parallel, const StepBatch& batch, int64_t micro, MicroSchedule schedule,
                      const std::function<Tensor(const MicroBatch&)>& output);

// The loss over a global batch, for the second pass.
class GlobalBatchLoss {
 public:
  // `outputs`: of outputs_of_all(). Throws ExitCode::kConfig where the task does not give each sample a loss.
  GlobalBatchLoss(GlobalBatchTask& task, const Tensor& outputs);
  // Of the samples of a micro-batch, whose first one has this index in the global batch, fp32 [1]: what they add to the
  // loss. Its backward pass gives `output`, [B, D], their part of the whole loss's gradient.
  Tensor loss_of(const Tensor& output, int64_t first) const;

 private:
  Tensor losses_;    // [N]
  Tensor gradient_;  // [N, D]
};

}  // namespace lockstep
