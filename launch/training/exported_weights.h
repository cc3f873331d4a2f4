// The parameters and buffers of a checkpoint as they are exported: adapters merged into the layers that they adapt, and
// what the checkpoint does not hold read from init.from. Opened by the command that exports; borrows the checkpoint.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/interop/hf_model.h"
#include "core/io/safetensors.h"
#include "core/state/checkpoint.h"
#include "core/state/weight_coder.h"
#include "launch/config/settings.h"

namespace lockstep {

class ExportedWeights {
 public:
  // `averages`: those of the parameters in their place. `settings`: of the checkpoint, borrowed; null where it holds
  // all parameters itself. Reads the frozen parameters that it names, and throws ExitCode::kBadData where init.from
  // does not hold them.
  ExportedWeights(const Checkpoint& checkpoint, const Settings* settings, bool averages);

  // By the names in a checkpoint, "parameters/..." and "buffers/...", without adapters.
  const std::map<std::string, Shape>& shapes() const { return shapes_; }
  // Those that were trained beside a model that the checkpoint names, adapters among them; empty where it holds all.
  const std::map<std::string, Shape>& trained() const { return trained_; }
  // Elements [range) of the flattened tensor, of shapes() or trained(), in fp32.
  void read(const std::string& name, IndexRange range, float* out) const;

 private:
  struct Adapter {
    std::string layer;  // "parameters/blocks.0.qkv"
    int64_t rank = 0;
    std::vector<float> a, b;
  };
  void read_stored(const std::string& name, IndexRange range, float* out) const;
  void round_coded(const std::string& name, IndexRange range, float* out) const;
  void add_base();
  void merge(const std::string& layer, IndexRange rows, IndexRange range, float* out) const;

  const Checkpoint& checkpoint_;
  const Settings* settings_;
  std::set<std::string> averaged_;
  std::map<std::string, Shape> shapes_, trained_;
  HfModel folder_;                                  // that init.from is, where it is no checkpoint
  std::map<std::string, const HfTensor*> tensors_;  // of that
  std::optional<WeightFiles> files_;
  std::optional<Checkpoint> base_;
  std::set<std::string> coded_;                                       // of shapes(), those that the run had in codes
  mutable Adapter adapter_;                                           // the one read last
  mutable std::pair<std::string, std::optional<WeightCoder>> coder_;  // likewise
};

}  // namespace lockstep
