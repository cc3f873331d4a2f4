// Copies of a run's state into host memory, by all threads of the current stream.
#pragma once

#include <cstdint>
#include <vector>

#include "core/state/state.h"

namespace lockstep {

// Enqueues copies of the entries' values, in fp32, into `to`, a flat fp32 tensor in host memory: entry i from element
// places[i] on. On a GPU they are done once the current stream is.
void copy_state(const std::vector<StateEntry>& entries, const Tensor& to, const std::vector<int64_t>& places);

// The places of entries that follow each other, each from a multiple of `alignment` on; one more is the end of all.
std::vector<int64_t> places_of(const std::vector<StateEntry>& entries, int64_t alignment = 1);

}  // namespace lockstep
