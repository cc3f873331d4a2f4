// AdamW with moments of 8 bits (Dettmers et al., "8-bit optimizers via block-wise quantization", 2022; the codes are
// those of core/kernels/codes/block_codes.h).
#include "optim/adam_family.h"

namespace lockstep {
namespace {

class AdamW8Bit final : public AdamFamily {
 public:
  AdamW8Bit(const AdamWOptions& o, const std::vector<Slot>& slots)
      : AdamFamily(o, slots, "adamw8bit", Moments::k8Bit) {}

 private:
  void update_slot(const Slot& s, const std::vector<Tensor>& moments, const float* control) override {
    update_by("adamw", s, moments, control);
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw8bit(const AdamWOptions& o, const std::vector<Slot>& slots) {
  return std::make_unique<AdamW8Bit>(o, slots);
}
Choice<OptimizerKind> adamw8bit_choice() { return choice<OptimizerKind, AdamFamilyKind<make_adamw8bit>>("adamw8bit"); }

}  // namespace lockstep
