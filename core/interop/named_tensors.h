// NamedTensors: the parameters and buffers of a model by our names, wherever they are stored, as all that writes files
// takes them. Plain values and functions.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/partition.h"
#include "core/base/shape.h"

namespace lockstep {

struct HfModel;
struct StateEntry;
class Module;

// Elements [range) of one of our flattened tensors, in fp32.
using ReadElements = std::function<void(const std::string& name, IndexRange range, float* out)>;

struct NamedTensors {
  std::map<std::string, Shape> shapes;  // of "parameters/..." and "buffers/..."
  ReadElements read;
};

// Of a model in memory, by its whole entries (entries_of() in core/interop/load_weights.h); shares their memory.
NamedTensors tensors_of(const std::vector<StateEntry>& entries);
// Of a folder or file, for a model of ours that was built as it says; `model` must outlive what is returned. Throws
// what require_weights_for() throws.
NamedTensors tensors_of(const HfModel& model, const Module& built);

}  // namespace lockstep
