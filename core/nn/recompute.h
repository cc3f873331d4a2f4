// Which parts of a model are recomputed in the backward pass instead of saved (activation checkpointing).
// A plain function on a module's tree.
#pragma once

#include "core/base/field.h"
#include "core/nn/module.h"

namespace lockstep {

enum class Recompute {
  kNone,
  kBlock,      // each block of the root that has children of its own
  kAttention,  // the attention of each block alone
};
Field recompute_field(Recompute& mode);

// Sets every module of the tree. Returns the number of places that recompute; 0 if the mode does not fit the model.
int apply_recompute(Module& root, Recompute mode);

}  // namespace lockstep
