#include "core/nn/recompute.h"

namespace lockstep {

Field recompute_field(Recompute& mode) {
  return enum_field("recompute", mode,
                    {{"none", Recompute::kNone}, {"block", Recompute::kBlock}, {"attention", Recompute::kAttention}},
                    "what the backward pass computes again instead of keeping it in memory: block: each transformer "
                    "block, for one more forward pass in all; attention: its attention alone; the same bits either way")
      .without_effect_on_math();
}

int apply_recompute(Module& root, Recompute mode) {
  int places = root.recompute_attention(mode == Recompute::kAttention);
  if (mode != Recompute::kAttention) places = 0;
  for (Module* block : root.blocks()) {
    const bool on = mode == Recompute::kBlock && !block->children().empty();
    block->set_recompute(on);
    places += on;
  }
  return places;
}

}  // namespace lockstep
