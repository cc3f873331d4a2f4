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

struct GenerateOptions {
  int64_t tokens = 200;      // to add
  double temperature = 0.8;  // 0: always the likeliest
  int64_t top_k = 0;         // choose among so many of the likeliest only; 0: among all
  uint64_t seed = 1;         // of the choice
};

// Continues `tokens` (not empty) with a language model of int32 [1, T], T up to `context`, -> logits [1, T, classes];
// calls `on_token` with each new one. A longer text is continued from its last `context` tokens.
void generate(Model& model, std::vector<int32_t> tokens, int64_t context, const GenerateOptions& options,
              const std::function<void(int32_t token)>& on_token);

}  // namespace lockstep
