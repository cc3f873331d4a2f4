// How long work tells how far it is. A plain type.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

// Called from time to time with the completed and the total work, in the same unit; a total of 0 is not known.
using ProgressCallback = std::function<void(int64_t done, int64_t total)>;

}  // namespace lockstep
