// LoRA adapters as Hugging Face's peft saves them: a folder with adapter_config.json and adapter_model.safetensors.
// Plain values and functions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/nn/lora.h"
#include "launch/weights/hf_model.h"

namespace lockstep {

constexpr const char* kPeftConfig = "adapter_config.json";
constexpr const char* kPeftWeights = "adapter_model.safetensors";

struct PeftAdapter {
  LoraOptions options;  // targets are dotted names of our layers, train of our parameters
  HfModel weights;      // our adapters' tensors, and those of options.train, from the file's
};

// The adapter in `folder` of the model `base`. Which layers it adapts follows from the names of its tensors. Throws
// ExitCode::kBadData naming file and key for what is broken, changes results and is not supported, and for an adapter
// of no layer of this model; kMissingInput where a file is not there.
PeftAdapter read_peft_adapter(const std::string& folder, const HfModel& base);
// The options alone, without targets and train, of the text of adapter_config.json.
LoraOptions peft_options(std::string_view json, const std::string& path);

// The tensors of such a file for these layers and parameters of ours; where one layer of ours is several of theirs, all
// have the same A. Throws ExitCode::kBadData for a layer that has no counterpart, and for families that peft names in
// another way than their files.
std::vector<HfTensor> peft_tensors(const HfModel& base, const std::vector<std::string>& layers,
                                   const std::vector<std::string>& trained);
// adapter_config.json.
JsonObject peft_config(const HfModel& base, const LoraOptions& options, const std::vector<std::string>& layers,
                       const std::vector<std::string>& trained, const std::string& base_folder);

}  // namespace lockstep
