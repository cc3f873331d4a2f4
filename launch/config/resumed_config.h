// The configuration that a checkpoint was trained with, as a run that resumes it compares it with its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/io/checkpoint.h"

namespace lockstep {

// info.math_text with every value resolved. Checkpoints written before values of 0 were resolved hold 0 for
// batch.micro (an even share of batch.global for each rank) and schedule.steps (train.steps); these lines then show
// what 0 stood for.
std::string resolved_math_text(const CheckpointInfo& info);

// The integer under `key` in such a text; 0 where the key is absent or no integer.
int64_t integer_in(std::string_view math_text, std::string_view key);

}  // namespace lockstep
