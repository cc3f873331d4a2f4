// The weights of the model that a run starts from, init.from, as the run computes with them: those that it keeps in
// codes are what these decode to, and those of init.new what they begin as. Whole tensors by name, on the host. Opened
// by who needs them; borrows the settings.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/interop/hf_model.h"
#include "core/io/safetensors.h"
#include "core/nn/module.h"
#include "core/state/checkpoint.h"
#include "core/state/weight_coder.h"
#include "launch/config/settings.h"

namespace lockstep {

// Calls visit(row, values) for rows [rows) of a matrix of this shape, whose elements `read` gives, many at a time.
void for_rows(const Shape& shape, IndexRange rows, const ReadValues& read,
              const std::function<void(int64_t row, const float* values)>& visit);

class BaseWeights {
 public:
  // `entries`: all parameters and buffers of the model. `model`: built, not placed.
  BaseWeights(const Settings& settings, Module& model, const std::vector<StateEntry>& entries);
  BaseWeights(const BaseWeights&) = delete;  // tables refer to its own members
  BaseWeights& operator=(const BaseWeights&) = delete;

  const Checkpoint* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }  // null where it is a folder
  // Elements [range) of the flattened parameter or buffer, in fp32, as they are stored. `name` is "parameters/...".
  void read_stored(const std::string& name, const Shape& shape, IndexRange range, float* out) const;
  // As the run computes with them.
  void read(const std::string& name, const Shape& shape, IndexRange range, float* out) const;

 private:
  const Settings& settings_;
  HfModel folder_;                                  // where it is no checkpoint
  std::map<std::string, const HfTensor*> tensors_;  // of that
  std::optional<WeightFiles> files_;
  std::optional<Checkpoint> checkpoint_;
  std::map<std::string, Init> fresh_;                                 // those that init.from does not hold
  std::set<std::string> coded_;                                       // names of weights that the run has in codes
  mutable std::pair<std::string, std::optional<WeightCoder>> coder_;  // of the one read last
};

}  // namespace lockstep
