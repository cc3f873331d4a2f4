// AdamW written in tensor expressions, for tests of TensorOptimizer.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "core/ops/ops.h"
#include "optim/builtin.h"
#include "optim/tensor_optimizer.h"

namespace lockstep::testing {

class TensorAdamW final : public TensorOptimizer {
 public:
  TensorAdamW(const AdamWOptions& o, const std::vector<Slot>& slots) : TensorOptimizer(slots, {"t.m", "t.v"}), o_(o) {
    set_lr(o.lr);
  }

 private:
  void corrections(int64_t update, double& first, double& second) const override {
    first = 1 - std::pow(o_.beta1, static_cast<double>(update));
    second = 1 - std::pow(o_.beta2, static_cast<double>(update));
  }
  Tensor updated(TensorUpdate& u) const override {
    Tensor &m = u.moments[0], &v = u.moments[1];
    m = m * o_.beta1 + u.gradient * (1 - o_.beta1);
    v = v * o_.beta2 + u.gradient * u.gradient * (1 - o_.beta2);
    const Tensor direction = m / u.first_correction / (sqrt(v / u.second_correction) + o_.epsilon);
    const Tensor decayed = u.decay ? u.parameter * (1 - u.lr * o_.weight_decay) : u.parameter;
    return decayed - u.lr * direction;
  }
  AdamWOptions o_;
};

inline std::unique_ptr<Optimizer> make_tensor_adamw(const AdamWOptions& o, const std::vector<Slot>& slots) {
  return std::make_unique<TensorAdamW>(o, slots);
}

}  // namespace lockstep::testing
