// TensorOptimizer: an optimizer whose update is written in the operations of core/ops/ops.h. It runs on every device
// and at every shard level, and a CUDA graph may record it. Each operation is a pass over memory: an optimizer whose
// speed matters derives from Optimizer and launches one fused kernel (optim/optimizers). Owned as Optimizer is.
#pragma once

#include <vector>

#include "core/tensor/tensor.h"
#include "optim/optimizer.h"

namespace lockstep {

// What one update reads of a parameter, or of the part of it that this rank keeps: n elements, in any number of parts.
struct TensorUpdate {
  Tensor parameter;                            // fp32 [n], before the update
  Tensor gradient;                             // fp32 [n], of the mean loss, scaled and clipped
  std::vector<Tensor> moments;                 // fp32 [n] each
  Tensor lr;                                   // fp32 [1]: the learning rate, with the parameter's factor (optim.rules)
  Tensor first_correction, second_correction;  // fp32 [1]: what corrections() gave for this update
  bool decay = false;                          // whether weight decay, which is the optimizer's own, applies here
};

class TensorOptimizer : public Optimizer {
 protected:
  using Optimizer::Optimizer;
  // Returns the new parameter, and puts new tensors in the place of `update.moments` that change. Each element's result
  // must depend on that element's values alone, since ranks and calls see different parts of a parameter. Nothing is
  // written in place: where a step is skipped the results are dropped. Called without gradients being recorded.
  virtual Tensor updated(TensorUpdate& update) const = 0;
  // Two numbers that depend on the count of updates, from 1 on, such as 1 - beta^update.
  void corrections(int64_t update, double& first, double& second) const override {}

 private:
  void update_slot(const Slot& slot, const std::vector<Tensor>& moments, const float* control) final;
  void update_part(const Slot& slot, const std::vector<Tensor>& moments, int64_t begin, int64_t end) const;
};

}  // namespace lockstep
