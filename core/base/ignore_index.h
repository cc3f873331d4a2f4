// The target that counts for nothing: losses skip it, loaders write it where there is nothing to predict.
// A plain value.
// Knows nothing of losses or datasets.
#pragma once

#include <cstdint>

namespace lockstep {

constexpr int32_t kIgnoreIndex = -100;

}  // namespace lockstep
