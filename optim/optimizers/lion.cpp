// Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023): steps by the sign of a moment.
#include "optim/builtin.h"

namespace lockstep {
namespace {

class Lion final : public Optimizer {
 public:
  Lion(const LionOptions& o, const std::vector<Slot>& slots) : Optimizer(slots, {"lion.m"}), o_(o) { set_lr(o.lr); }

 private:
  void corrections(int64_t, double&, double&) const override {}
  void update_slot(const Slot& s, const std::vector<Tensor>& moments, const float* control) override {
    PointwiseArgs a = update_args(s, {s.master, moments[0]}, {s.master, moments[0], s.gradient});
    a.scalars[0] = o_.beta1;
    a.scalars[1] = o_.beta2;
    a.scalars[2] = s.decay ? o_.weight_decay : 0;
    a.scalars[3] = s.lr_scale;
    a.control = control;
    apply("lion", a);
  }
  LionOptions o_;
};

class LionKind final : public OptimizerKind {
 public:
  std::vector<Field> options() override {
    return {field("beta1", o_.beta1, "weight of the moment in the step's direction").with_range(0, kMostBeta),
            field("beta2", o_.beta2, "decay of the moment").with_range(0, kMostBeta)};
  }
  std::unique_ptr<Optimizer> build(const OptimOptions& common, const std::vector<Slot>& slots) const override {
    return make_lion({common.lr, o_.beta1, o_.beta2, common.weight_decay}, slots);
  }

 private:
  LionOptions o_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(const LionOptions& o, const std::vector<Slot>& slots) {
  return std::make_unique<Lion>(o, slots);
}
Choice<OptimizerKind> lion_choice() { return choice<OptimizerKind, LionKind>("lion"); }

}  // namespace lockstep
