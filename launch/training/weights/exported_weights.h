// The parameters and buffers of a checkpoint as they are exported: adapters merged into the layers that they adapt, and
// what the checkpoint does not hold read from init.from. Opened by the command that exports; borrows the checkpoint.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/state/checkpoint.h"
#include "launch/config/settings.h"
#include "launch/training/weights/base_weights.h"

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
  // Elements [range) of the flattened tensor, of shapes() or trained(), in fp32. Throws ExitCode::kBadData for an
  // adapted embedding that is tied to the model's head, whose two uses differ.
  void read(const std::string& name, IndexRange range, float* out) const;

 private:
  struct Adapter {
    std::string layer;  // "parameters/blocks.0.qkv"
    std::vector<float> a, b;
    std::vector<double> factors;  // of rows; empty without dora
  };
  void read_unmerged(const std::string& name, IndexRange range, float* out) const;
  void add_base();
  void open_adapter(const std::string& layer) const;
  std::vector<double> factors_of(const std::vector<float>& lengths) const;
  void add_change(int64_t row_of_adapter, IndexRange columns, std::vector<double>& row) const;
  // Adds to elements [range) of the weight `name` the adapter of `layer`, which changes these rows of it.
  void merge(const std::string& name, const std::string& layer, IndexRange rows, IndexRange range, float* out) const;

  const Checkpoint& checkpoint_;
  const Settings* settings_;
  std::set<std::string> averaged_;
  std::map<std::string, Shape> shapes_, trained_;
  bool is_tied_ = false;             // the embedding of tokens and the head
  std::optional<BaseWeights> base_;  // where the checkpoint names them
  mutable Adapter adapter_;          // the one read last
};

}  // namespace lockstep
