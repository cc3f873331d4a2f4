// The updates as fused passes over a slot: compiled per instruction-set level, and by nvcc.
// Plain functions.
// Knows nothing of slots.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"

namespace lockstep {

// Positions in the control buffer, read when the update runs.
struct UpdateControl {
  static constexpr int kLr = 0, kGradScale = 1, kSkip = 2, kCorrection1 = 3, kCorrection2 = 4, kCount = 8;
};

struct UpdateTable {
  // p, momentum, g -> p, momentum. Scalars: momentum, weight decay, learning-rate scale, Nesterov (0 or 1).
  void (*sgd)(Parallel&, const PointwiseArgs&);
  // p, m, v, g -> p, m, v. Scalars: beta1, beta2, epsilon, weight decay, learning-rate scale.
  void (*adamw)(Parallel&, const PointwiseArgs&);
};
const UpdateTable& update_kernels();

}  // namespace lockstep
