// What Adam, AdamW, LAMB and Muon share: two moments with bias corrections, AdamW's options and update, and a kind of
// optimizer with these options.
#pragma once

#include <cmath>

#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"
#include "optim/builtin.h"

namespace lockstep {

class AdamFamily : public Optimizer {
 protected:
  AdamFamily(const AdamWOptions& o, const std::vector<Slot>& slots, const std::string& name,
             Moments kept = Moments::kFloat32)
      : Optimizer(slots, {name + ".m", name + ".v"}, kept), o_(o) {
    set_lr(o.lr);
  }
  AdamFamily(const AdamWOptions& o, const std::vector<Slot>& slots,
             const std::function<std::vector<std::string>(const Slot&)>& moments)
      : Optimizer(slots, moments), o_(o) {
    set_lr(o.lr);
  }
  void corrections(int64_t update, double& first, double& second) const final {
    first = weight_sum(o_.beta1, update);
    second = weight_sum(o_.beta2, update);
  }
  // The first scalars of their updates (AdamMoments in core/kernels/update.cpp).
  void set_scalars(PointwiseArgs& a, const Slot& s, const float* control) const {
    a.scalars[0] = o_.beta1;
    a.scalars[1] = o_.beta2;
    a.scalars[2] = o_.epsilon;
    a.scalars[3] = s.decay ? o_.weight_decay : 0;
    a.control = control;
  }

  // `op`: "adamw" or "adam".
  void update_by(const char* op, const Slot& s, const std::vector<Tensor>& moments, const float* control) {
    PointwiseArgs a =
        update_args(s, {s.master, moments[0], moments[1]}, {s.master, moments[0], moments[1], s.gradient});
    set_scalars(a, s, control);
    a.scalars[4] = s.lr_scale;
    apply(op, a);
  }

 private:
  // The bias correction of a moment after `update` updates, with the factors as the kernel rounds them: (1 - beta) * (1
  // + beta + ... + beta^(update - 1)), which is 1 - beta^update up to those roundings.
  static double weight_sum(double beta, int64_t update) {
    const double kept = static_cast<float>(beta), rest = static_cast<float>(1 - beta);
    return rest * (1 - std::pow(kept, static_cast<double>(update))) / (1 - kept);
  }
  AdamWOptions o_;
};

// A kind with AdamW's options, made by `make`.
template <std::unique_ptr<Optimizer> (*make)(const AdamWOptions&, const std::vector<Slot>&)>
class AdamFamilyKind : public OptimizerKind {
 public:
  std::vector<Field> options() override { return fields(o_); }
  std::unique_ptr<Optimizer> build(const OptimOptions& common, const std::vector<Slot>& slots) const override {
    AdamWOptions o = o_;
    o.lr = common.lr;
    o.weight_decay = common.weight_decay;
    return make(o, slots);
  }

 private:
  AdamWOptions o_;
};

}  // namespace lockstep
