// Stochastic gradient descent with momentum (Sutskever et al. 2013, as PyTorch has it); decay is added to the gradient.
#include "optim/builtin.h"

namespace lockstep {
namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(const SgdOptions& o, const std::vector<Slot>& slots) : Optimizer(slots, {"sgd.momentum"}), o_(o) { set_lr(o.lr); }

 private:
  void corrections(int64_t, double&, double&) const override {}
  void update_slot(const Slot& s, const std::vector<Tensor>& moments, const float* control) override {
    PointwiseArgs a = update_args(s, {s.master, moments[0]}, {s.master, moments[0], s.gradient});
    a.scalars[0] = o_.momentum;
    a.scalars[1] = s.decay ? o_.weight_decay : 0;
    a.scalars[2] = s.lr_scale;
    a.scalars[3] = o_.nesterov ? 1 : 0;
    a.control = control;
    apply("sgd", a);
  }
  SgdOptions o_;
};

class SgdKind final : public OptimizerKind {
 public:
  std::vector<Field> options() override {
    return {field("momentum", o_.momentum, "momentum").with_range(0, kMostBeta),
            field("nesterov", o_.nesterov, "Nesterov's form of momentum")};
  }
  std::pair<std::string, std::string> problem() const override {
    if (!o_.nesterov || o_.momentum > 0) return {};
    return {"nesterov", "has an effect only with optim.momentum above 0"};
  }
  std::unique_ptr<Optimizer> build(const OptimOptions& common, const std::vector<Slot>& slots) const override {
    return make_sgd({common.lr, o_.momentum, common.weight_decay, o_.nesterov}, slots);
  }

 private:
  SgdOptions o_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& o, const std::vector<Slot>& slots) {
  return std::make_unique<Sgd>(o, slots);
}
Choice<OptimizerKind> sgd_choice() { return choice<OptimizerKind, SgdKind>("sgd"); }

}  // namespace lockstep
