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

struct LionOptions {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
};

struct MuonOptions {
  AdamWOptions adamw = {};  // learning rate and weight decay are those of matrices too
  double momentum = 0.95;
  // Patterns, as in OptimRule, of what AdamW updates beside vectors and tables (core/nn/module.h); by default the heads
  // of the built-in models. Names of tables are here since checkpoints hold this list.
  std::vector<std::string> adamw_for = {"wte.*",       "wpe.*",  "embedding.*", "tokens.*", "positions.*",
                                        "class_token", "head.*", "fc.*",        "fc2.*"};
};

std::vector<Field> fields(AdamWOptions& o);  // beta1, beta2, epsilon

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& o, const std::vector<Slot>& slots);
std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& o, const std::vector<Slot>& slots);
// AdamW, whose moments are 8-bit codes between updates (Dettmers et al. 2022).
std::unique_ptr<Optimizer> make_adamw8bit(const AdamWOptions& o, const std::vector<Slot>& slots);
// Adam (Kingma and Ba 2015): as AdamW, but for weight decay, which is added to the gradient.
std::unique_ptr<Optimizer> make_adam(const AdamWOptions& o, const std::vector<Slot>& slots);
// LAMB (You et al. 2019): as AdamW, with a step for each parameter in proportion to its norm. Options are AdamW's.
std::unique_ptr<Optimizer> make_lamb(const AdamWOptions& o, const std::vector<Slot>& slots);
// Muon (Jordan et al. 2024) for matrices and larger tensors, AdamW for vectors, tables and what `adamw_for` names.
std::unique_ptr<Optimizer> make_muon(const MuonOptions& o, const std::vector<Slot>& slots);
std::unique_ptr<Optimizer> make_lion(const LionOptions& o, const std::vector<Slot>& slots);

}  // namespace lockstep
