// Options that folders of transformers and peft set: init.from and init.adapter. Plain functions.
#pragma once

#include <memory>

#include "core/interop/hf_model.h"
#include "launch/config/config_tree.h"

namespace lockstep {

// Sets the keys of section model in the tree to what the folder's config.json says; null where init.from is no such
// folder. Throws ExitCode::kBadData for the folder, and kConfig naming both places where the tree has another value.
std::shared_ptr<const HfModel> take_model_of_folder(ConfigTree& tree);

// The same for init.adapter, an adapter of that model: sets section lora to what its adapter_config.json says, and
// returns which tensors are to be read. Also throws kConfig where `model` is null.
std::shared_ptr<const HfModel> take_adapter_of_folder(ConfigTree& tree, const HfModel* model);

}  // namespace lockstep
