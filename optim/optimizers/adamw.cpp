// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019), which differ in weight decay.
#include <cmath>

#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"
#include "optim/builtin.h"

namespace lockstep {
namespace {

class Adam final : public Optimizer {
 public:
  Adam(const AdamWOptions& o, bool decoupled, const std::vector<Slot>& slots)
      : Optimizer(slots, 2), o_(o), decoupled_(decoupled) {}
  std::vector<std::string> moment_names() const override {
    return decoupled_ ? std::vector<std::string>{"adamw.m", "adamw.v"} : std::vector<std::string>{"adam.m", "adam.v"};
  }

 private:
  void corrections(int64_t update, double& first, double& second) const override {
    first = weight_sum(o_.beta1, update);
    second = weight_sum(o_.beta2, update);
  }
  // The bias correction of a moment after `update` updates, with the factors as the kernel rounds them: (1 - beta) * (1
  // + beta + ... + beta^(update - 1)), which is 1 - beta^update up to those roundings.
  static double weight_sum(double beta, int64_t update) {
    const double kept = static_cast<float>(beta), rest = static_cast<float>(1 - beta);
    return rest * (1 - std::pow(kept, static_cast<double>(update))) / (1 - kept);
  }
  void update_slot(const Slot& s, const std::vector<Tensor>& moments, const float* control) override {
    PointwiseArgs a =
        update_args(s, {s.master, moments[0], moments[1]}, {s.master, moments[0], moments[1], s.gradient});
    a.scalars[0] = o_.beta1;
    a.scalars[1] = o_.beta2;
    a.scalars[2] = o_.epsilon;
    a.scalars[3] = s.decay ? o_.weight_decay : 0;
    a.scalars[4] = s.lr_scale;
    a.control = control;
    if (decoupled_) raw::launch([](Parallel& p, const PointwiseArgs& args) { kernels(p).update(p, "adamw", args); }, a);
    else raw::launch([](Parallel& p, const PointwiseArgs& args) { kernels(p).update(p, "adam", args); }, a);
  }
  AdamWOptions o_;
  bool decoupled_;
};

class AdamWKind final : public OptimizerKind {
 public:
  std::vector<Field> options() override { return fields(o_); }
  std::unique_ptr<Optimizer> build(const OptimOptions& common, const std::vector<Slot>& slots) const override {
    AdamWOptions o = o_;
    o.lr = common.lr;
    o.weight_decay = common.weight_decay;
    return make_adamw(o, slots);
  }

 private:
  AdamWOptions o_;
};

}  // namespace

std::vector<Field> fields(AdamWOptions& o) {
  return {field("beta1", o.beta1, "decay of the first moment").with_range(0, kMostBeta),
          field("beta2", o.beta2, "decay of the second moment").with_range(0, kMostBeta),
          field("epsilon", o.epsilon, "added to the root of the second moment").with_range(0, 1)};
}

std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& o, const std::vector<Slot>& slots) {
  return std::make_unique<Adam>(o, true, slots);
}
std::unique_ptr<Optimizer> make_adam(const AdamWOptions& o, const std::vector<Slot>& slots) {
  return std::make_unique<Adam>(o, false, slots);
}
Choice<OptimizerKind> adamw_choice() { return choice<OptimizerKind, AdamWKind>("adamw"); }

}  // namespace lockstep
