// The unit in which a run's state is divided, hashed and summed.
#pragma once

#include <cstdint>

namespace lockstep {

// Elements. Slices of tensors and of flat buffers begin at multiples of it, so that each chunk has one owner on every
// layout; digests hash, and norms of gradients sum squares, chunk by chunk. Checkpoints and digests depend on it.
constexpr int64_t kStateChunk = 64;

}  // namespace lockstep
