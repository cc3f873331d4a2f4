// StateEntry: a slice of one named tensor of a run's state, as checkpoints and digests see it.
// A value; shares the tensor's memory.
// Knows nothing of who made it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/tensor/tensor.h"

namespace lockstep {

constexpr int64_t kStateChunk = 64;  // elements of one hash of a digest; slices begin at multiples of it

struct StateEntry {
  std::string name;    // "parameters/blocks.0.up.weight", "adamw.m/..."
  Shape shape;         // of the whole tensor
  int64_t offset = 0;  // first element of this slice, in the flattened tensor; a multiple of kStateChunk
  Tensor data;         // fp32 [n], host memory

  int64_t end() const { return offset + data.numel(); }
};

// The part of each entry that rank `rank` of `size` holding the same entries writes: together they cover all once.
std::vector<StateEntry> cut_for_rank(const std::vector<StateEntry>& entries, int rank, int size);

// Sum mod 2^128 of one hash for each chunk of kStateChunk elements, keyed by name and chunk index: slices of any layout
// add up to one value.
Hash128 digest_of(const std::vector<StateEntry>& entries);
// The same for a stretch of a tensor's elements from `offset` (a multiple of kStateChunk).
Hash128 digest_of(std::string_view name, int64_t offset, const float* values, int64_t n);

}  // namespace lockstep
