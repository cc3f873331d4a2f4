// Model: the root module of a training run, with its loss. What a user writes.
// Owned by the trainer, or by a loop of one's own.
// Knows nothing of ranks, devices, precision, or where batches come from.
#pragma once

#include "core/nn/module.h"

namespace lockstep {

// What the data looks like, told to a model when it is built.
struct TaskSpec {
  Shape input;          // of one sample: tokens [T], images [H, W, C]
  int64_t classes = 0;  // vocabulary, or labels
};

class Model : public Module {
 public:
  // Sum of the losses of the micro-batch's targets, fp32 [1]; targets equal to kIgnoreIndex count nothing.
  // By default, cross-entropy of forward's result [..., classes] against int32 targets [...].
  virtual Tensor loss(const Tensor& input, const Tensor& target);
};

}  // namespace lockstep
