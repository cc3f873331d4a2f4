// The configuration of a checkpoint, in the form in which a resumed run compares it with its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/state/checkpoint.h"

namespace lockstep {

// info.math_text with every value resolved. Old checkpoints hold 0 for batch.micro (an equal share of batch.global for
// each rank) and schedule.steps (train.steps); the result holds the values that 0 stood for. It lacks keys that
// older versions counted among those that shape results: train.loss_rows.
std::string resolved_math_text(const CheckpointInfo& info);

// The integer train.`key` of a resolved configuration, as info.config is; 0 if it is absent or not an integer.
int64_t train_integer_in(const std::string& config, std::string_view key);

// Whether the run of such a configuration was scored on tasks (train.eval_tasks).
bool scores_tasks(const std::string& config);

// The integer value of `key` in such a text; 0 if the key is absent or not an integer.
int64_t integer_in(std::string_view math_text, std::string_view key);

}  // namespace lockstep
