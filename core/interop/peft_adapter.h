// LoRA adapters as Hugging Face's peft saves them: a folder with adapter_config.json and adapter_model.safetensors.
// Plain values and functions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/interop/hf_model.h"
#include "core/interop/peft_pattern.h"
#include "core/nn/lora.h"

namespace lockstep {

class HfConfig;

constexpr const char* kPeftConfig = "adapter_config.json";
constexpr const char* kPeftWeights = "adapter_model.safetensors";
// Of its tensors' names: the beginning, and the end of a copy of an adapted layer's own weight.
constexpr std::string_view kPeftPrefix = "base_model.model.", kBaseLayer = ".base_layer.weight";

// What of ours is adapted, or trained whole.
struct PeftParts {
  std::vector<std::string> layers;   // linear ones, or parts of them (core/nn/lora.h)
  std::vector<std::string> tables;   // embeddings
  std::vector<std::string> trained;  // parameters
  bool dora = false;
};

struct PeftAdapter {
  LoraOptions options;  // targets are dotted names of our layers or parts, train of our parameters
  PeftParts parts;
  HfModel weights;  // our adapters' tensors, and those of options.train, from the file's
};

// The adapter in `folder` of the model `base`. Which layers it adapts follows from the names of its tensors. Throws
// ExitCode::kBadData naming file and key for what is broken, changes results and is not supported, for an adapter of no
// layer of this model, and for one that holds a tied weight without its copy or without ensure_weight_tying;
// kMissingInput where a file is not there.
PeftAdapter read_peft_adapter(const std::string& folder, const HfModel& base);
// The options of adapter_config.json alone, without targets, train and rules.
LoraOptions peft_options(const HfConfig& config);
// `options` for one module: with this rank, which its factors have, and with the alpha that `alphas`, the file's
// "alpha_pattern", gives it. Throws kBadData where either is out of its range.
LoraOptions peft_options_of(const HfConfig& config, const LoraOptions& options, const PeftPattern& alphas,
                            const std::string& module, int64_t rank);

// `model` with the names that peft gives its tensors: those of its modules in transformers 5, which of some families
// differ from those in files. Throws kBadData for a family whose adapters are not supported.
HfModel named_by_peft(HfModel model);
// The tensors of such a file for these parts; where one layer of ours is several of theirs, all have the same A, and a
// tied weight comes with its copy, under one name of ours. `base` as named_by_peft(). Throws ExitCode::kBadData for
// what has no counterpart, and for a weight of BERT that is tied.
std::vector<HfTensor> peft_tensors(const HfModel& base, const PeftParts& parts);
// Modules by the names that peft gives them.
struct PeftModules {
  std::vector<JsonValue> targets, saved;  // adapted, and trained whole
  JsonObject ranks, alphas;               // that differ from the options'
};
// adapter_config.json. `task`, `base`: its task_type and base_model_name_or_path, texts or null.
JsonObject peft_config(const PeftModules& modules, const LoraOptions& options, const JsonValue& task,
                       const JsonValue& base, bool fan_in_fan_out);
// The same of parts of our model.
JsonObject peft_config(const HfModel& base, const LoraOptions& options, const PeftParts& parts,
                       const std::string& base_folder);

}  // namespace lockstep
