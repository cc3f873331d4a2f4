// Which of a model's parameters travel together. Blocks are the root's children, if no other module reads their
// parameters; children that share parameters, and the root's own, belong to the root. So do embeddings that are
// trained. Plain values and a function.
#pragma once

#include <vector>

#include "core/nn/module.h"
#include "sharding/options.h"

namespace lockstep {

struct ModelBlock {
  std::vector<Module*> modules;  // none for the root's
  std::vector<NamedParameter> trainable, frozen;
};

struct ModelBlocks {
  ModelBlock root;
  std::vector<ModelBlock> blocks;  // in the order of use; small ones are joined until they reach options.bucket_mb
};

// Throws ExitCode::kConfig where no parameter is trainable.
ModelBlocks blocks_of(Module& model, const DataParallelOptions& options);

}  // namespace lockstep
