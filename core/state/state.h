// StateEntry: a slice of one named tensor of a run's state, for checkpoints and digests. A value; shares the tensor's
// memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/hash.h"
#include "core/base/region.h"
#include "core/base/state_chunk.h"
#include "core/tensor/stretches.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// What a name of state begins with where it is a parameter or a buffer; the name in the model follows.
inline constexpr std::string_view kParameters = "parameters/", kBuffers = "buffers/";
inline std::string name_in_model(const std::string& name) { return name.substr(name.find('/') + 1); }

struct StateEntry {
  std::string name;    // "parameters/blocks.0.up.weight", "adamw.m/..."
  Region region;       // of the tensor: the whole, or a box; a Shape is the whole
  int64_t offset = 0;  // first element of this slice, in the flattened region; a multiple of kStateChunk
  Tensor data;         // fp32 [n], or a narrower type, on any device; or with `scales` codes
  Tensor scales = {};  // if defined: of blocks of 8-bit codes (raw::encode_blocks), whose values the state is

  int64_t end() const { return offset + data.numel(); }
  bool begins_tensor() const;  // Does it hold the tensor's first element?
  // Elements [begin, end) of the slice in fp32: its own, or a copy. The slice's elements from `begin` on become `from`,
  // fp32. Of codes these are whole blocks.
  Tensor values(int64_t begin, int64_t end) const;
  void set_values(int64_t begin, const Tensor& from) const;
  StateEntry part(int64_t begin, int64_t end) const;  // as a slice of its own
};

// The part of each entry that rank `rank` of `size` holding the same entries writes: together they cover all once.
std::vector<StateEntry> cut_for_rank(const std::vector<StateEntry>& entries, int rank, int size);

// for_each_stretch (core/tensor/stretches.h) of the slice's values; of codes `most` is a multiple of kStateChunk.
void for_each_stretch(const StateEntry& entry, int64_t most, const VisitStretch& visit);

// Sum mod 2^128 of one hash for each chunk of kStateChunk elements of the flattened tensor, keyed by name and chunk
// index: slices of any layout add up to one value. Throws ExitCode::kInternal where a region cuts chunks: then ranks
// bring these together first (sharding/cut_chunks.h).
Hash128 digest_of(const std::vector<StateEntry>& entries);
// The same for a stretch of a tensor's elements from `offset` (a multiple of kStateChunk).
Hash128 digest_of(std::string_view name, int64_t offset, const float* values, int64_t n);
// What a tensor's elements are hashed under where they are hashed in the order of a region: its name, and the box
// unless that is the whole. Such hashes say whether two copies of a slice are equal; they are no part of a digest.
std::string name_of_region(const std::string& name, const Region& region);

}  // namespace lockstep
