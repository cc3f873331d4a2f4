// Adam with weight decay in the gradient. The optimizer itself is AdamW's (adamw.cpp).
#include "optim/builtin.h"

namespace lockstep {
namespace {

class AdamKind final : public OptimizerKind {
 public:
  std::vector<Field> options() override { return fields(o_); }
  std::unique_ptr<Optimizer> build(const OptimOptions& common, const std::vector<Slot>& slots) const override {
    AdamWOptions o = o_;
    o.lr = common.lr;
    o.weight_decay = common.weight_decay;
    return make_adam(o, slots);
  }

 private:
  AdamWOptions o_;
};

}  // namespace

Choice<OptimizerKind> adam_choice() { return choice<OptimizerKind, AdamKind>("adam"); }

}  // namespace lockstep
