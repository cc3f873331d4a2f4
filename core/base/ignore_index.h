// The target that losses ignore: padding, or tokens that the user excluded.
#pragma once

#include <cstdint>

namespace lockstep {
constexpr int32_t kIgnoreIndex = -100;
}  // namespace lockstep
