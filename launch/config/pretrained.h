// The options of a model that init.from names, where that is a folder of transformers. Plain functions.
#pragma once

#include <memory>

#include "launch/config/config_tree.h"
#include "launch/weights/hf_model.h"

namespace lockstep {

// Sets the keys of section model in the tree to what the folder's config.json says; null where init.from is no such
// folder. Throws ExitCode::kBadData for the folder, and kConfig naming both places where the tree has another value.
std::shared_ptr<const HfModel> take_model_of_folder(ConfigTree& tree);

}  // namespace lockstep
