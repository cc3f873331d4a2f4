// Reads the tensors of a folder of transformers into slices of ours, at any layout: each rank reads what its slices
// need. Plain functions. All throw ExitCode::kBadData or kMissingInput with one line.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/interop/hf_model.h"
#include "core/state/state.h"

namespace lockstep {

// All parameters and buffers of a model whose parameters are placed, whole: they share its memory.
std::vector<StateEntry> entries_of(const Module& model);

// `model` with the tensors that it is read from: of a file with our names, which says nothing of a model, those of
// `entries`.
HfModel with_own_names(const HfModel& model, const std::vector<StateEntry>& entries);

// `entries` are all parameters and buffers of a model, each by one or more slices (an empty one where this rank owns
// nothing of it). Throws kBadData where the folder's tensors are not those that they need; it lists the first five
// differences.
void require_weights_for(const HfModel& model, const WeightFiles& files, const std::vector<StateEntry>& entries);

// The same, then fills the entries, and returns digest_of what was read, as it is stored. Also refuses values that are
// not finite and copies that differ from what they copy.
Hash128 load_weights(const HfModel& model, const std::vector<StateEntry>& entries);

// The floating-point type in which the folder stores all tensors of ours with these names, or fp32 where these are
// several, or the folder has no weights yet.
DType stored_type(const HfModel& model, const std::function<bool(const std::string& parameter)>& counts);

// Elements [range) of the flattened tensor of ours with this shape.
void read_weight(const HfTensor& tensor, const Shape& shape, const HfModel& model, const WeightFiles& files,
                 IndexRange range, float* out);

}  // namespace lockstep
