// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019), which differ in weight decay.
#include "optim/adam_family.h"

namespace lockstep {
namespace {

class Adam final : public AdamFamily {
 public:
  Adam(const AdamWOptions& o, bool decoupled, const std::vector<Slot>& slots)
      : AdamFamily(o, slots, decoupled ? "adamw" : "adam"), decoupled_(decoupled) {}

 private:
  void update_slot(const Slot& s, const std::vector<Tensor>& moments, const float* control) override {
    update_by(decoupled_ ? "adamw" : "adam", s, moments, control);
  }
  bool decoupled_;
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
Choice<OptimizerKind> adamw_choice() { return choice<OptimizerKind, AdamFamilyKind<make_adamw>>("adamw"); }

}  // namespace lockstep
