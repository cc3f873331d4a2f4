// What architectures of our llama share; defined in llama.cpp. Plain functions.
#pragma once

#include "core/interop/hf/shared.h"
#include "core/models/llama.h"

namespace lockstep {

// Which of the architectures a model is: HfFamily::holds of Gemma's and of GPT-NeoX.
bool has_norms_on_both_sides(const std::vector<Field>& options);
bool has_layer_norms(const std::vector<Field>& options);
// What is exported: with the sizes that 0 stands for. Throws ExitCode::kConfig, naming the key, where the options do
// not fit together.
LlamaOptions exported_llama(const std::vector<Field>& options, const TaskSpec& task);
void name_llama_tensors(const LlamaOptions& o, HfModel& m);
// The model of these options, which are not resolved yet; `longest`: max_position_embeddings where it is not given.
HfModel llama_model(const LlamaOptions& given, const HfConfig& c, int64_t longest);
// Adds to `o` the scaling of "rope_scaling", or of what takes its place in "rope_parameters". `longest`:
// max_position_embeddings. `partial`: the caller reads partial_rotary_factor.
void read_rope_scaling(const HfConfig& how, int64_t longest, RopeOptions& o, bool partial = false);
// Features of a head that are turned: its int(width * factor) first ones. Refuses `key` where that is no even number.
int64_t part_of_head(const HfConfig& c, const char* key, int64_t head_width, double factor);
double rotary_part(const LlamaOptions& o);        // the factor of which part_of_head() makes rope_width
JsonValue rope_scaling_of(const RopeOptions& o);  // for config.json; null: none
// What config.json holds of all of them.
JsonObject llama_config(const LlamaOptions& o, const TaskSpec& task, const std::string& architecture,
                        const std::string& family);
// Adds ids of special tokens, as null: transformers' own may lie beyond a small vocabulary.
void add_token_ids(JsonObject& config);
// HfFamily::keep. The longest input, as what the weights were trained for may be longer than the data; they do not
// depend on it.
void keep_llama(const HfConfig& source, JsonObject& config);

}  // namespace lockstep
