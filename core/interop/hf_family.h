// HfFamily: what is to be known of one architecture of Hugging Face's transformers. Each source file hf/NAME.cpp
// defines `HfFamily NAME_family()`, and the list `families` in core/CMakeLists.txt names it. No other code asks which
// architecture it has before it, but that for files of llm.c, which hold GPT-2 alone. Plain values, which live as long
// as the program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/base/field.h"
#include "core/interop/hf_config.h"
#include "core/interop/hf_model.h"

namespace lockstep {

enum class HfUse {
  kText,    // goes on with a text
  kLabels,  // says something of a text or of its tokens
  kImages,  // says which class an image is of
};

// How peft adapts models of the family.
struct PeftRules {
  bool supported = true;
  bool keeps_ties = true;       // with ensure_weight_tying it trains a weight and its copy as one
  bool fan_in_fan_out = false;  // linear layers hold weights as [in, out]
  // Parts of the names of modules, as files have them and as transformers 5 calls these modules, where that differs.
  std::vector<std::pair<std::string, std::string>> modules = {};
};

struct HfFamily {
  std::vector<std::string> types;  // of config.json's model_type; the order in which messages list them
  std::string model;               // our model.name
  // Each fills in a HfModel but for what it was read from: `folder`, `family`, `model` and `table`. The first throws
  // ExitCode::kBadData or kConfig for what is not supported; the second is HfExport of hf_export_of(), and sets the
  // model's `family` to one of `types` and its `options` to all of the model's, with the sizes that 0 stands for. It
  // need not refuse what config.json has no key for: hf_export_of() compares these options with what `read` finds.
  HfModel (*read)(const HfConfig& config);
  HfExport (*write)(const std::vector<Field>& options, const TaskSpec& task);
  // Whether a model with these options is of this architecture, where several are of our model; null: it is.
  bool (*holds)(const std::vector<Field>& options) = nullptr;
  HfUse use = HfUse::kText;
  PeftRules peft = {};
  // Gives `config`, of a model that is written, what it keeps of the one that the run began with; null: nothing.
  void (*keep)(const HfConfig& source, JsonObject& config) = nullptr;
};

const std::vector<HfFamily>& hf_families();
// As they are listed in core/CMakeLists.txt, which makes this function.
std::vector<HfFamily> builtin_hf_families();

}  // namespace lockstep
