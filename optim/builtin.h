// The built-in optimizers: functions that make one for a custom training loop, and their options.
#pragma once

#include "optim/optimizer.h"

namespace lockstep {

struct SgdOptions {
  double lr = 0.01, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};
struct AdamWOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
};

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& o, const std::vector<Slot>& slots);
std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& o, const std::vector<Slot>& slots);

}  // namespace lockstep
