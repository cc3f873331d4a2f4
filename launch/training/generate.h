// A trained model in one process, and text from it. Plain values and functions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/io/checkpoint.h"
#include "core/models/model.h"
#include "launch/config/settings.h"

namespace lockstep {

// The model of `settings` with the parameters of `checkpoint`, or with their averages, on the current stream's device,
// for evaluation. Throws ExitCode::kBadData for a checkpoint of another model, kConfig for one without averages.
std::unique_ptr<Model> load_model(const Settings& settings, const Checkpoint& checkpoint, bool averages = false);

// The model of a folder of transformers, settings.pretrained, for data of these shapes. Throws ExitCode::kBadData where
// the folder's tensors do not fit, kConfig where the data has more tokens than the model.
std::unique_ptr<Model> load_pretrained(const Settings& settings, const TaskSpec& task);

// From now on the model reads its parameters, and computes, in `type`, as training in precision.compute does; they are
// converted once. For a model in evaluation.
void compute_in(Model& model, DType type);

struct GenerateOptions {
  int64_t tokens = 200;            // to add
  double temperature = 0.8;        // 0: always the likeliest
  int64_t top_k = 0;               // choose among so many of the likeliest only; 0: among all
  double top_p = 1;                // among the fewest of these that have this probability together
  double min_p = 0;                // and at least this part of the likeliest's probability
  double repetition_penalty = 1;   // divides positive logits of tokens that the text has, multiplies negative ones
  uint64_t seed = 1;               // of the choice
  int64_t vocabulary = 0;          // choose among the tokens below this only, where the model holds more; 0: among all
  std::vector<int32_t> ends = {};  // a sequence ends before one of these tokens
  bool cache = true;               // keep keys and values of earlier tokens: same text, sooner
};

// Called with each new token of a sequence; returns whether it goes on.
using OnToken = std::function<bool(size_t sequence, int32_t token)>;

// Continues sequences (none empty) with a language model of int32 [B, T], T up to `context`, -> logits [B, T, classes].
// What a sequence becomes depends on it and the options alone, not on the others or the number of threads. One that is
// longer than the context is continued from its last `context` tokens, which no cache holds.
void generate(Model& model, std::vector<std::vector<int32_t>> sequences, int64_t context,
              const GenerateOptions& options, const OnToken& on_token);

}  // namespace lockstep
