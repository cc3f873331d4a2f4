// ValueWatch: statistics and histograms of what modules give, of parameters, gradients and updates, by name, in some
// steps (train.watch).
// Owned by the trainer; borrows the model and the communicator.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/io/histogram.h"
#include "core/nn/module.h"
#include "core/nn/slot.h"

namespace lockstep {

class ValueWatch {
 public:
  struct Spread {
    std::string name;  // "blocks.0"; of a parameter "wte.weight", "wte.weight/grad", "wte.weight/update"
    Histogram counts;  // of the finite ones
    double sum = 0, squares = 0, largest = 0;  // of these; the largest by absolute value
  };
  struct Seen {
    std::vector<std::pair<std::string, double>> values;
    std::vector<Spread> spreads;
  };

  // Modules and parameters whose dotted names match a pattern, in steps that are multiples of `every`. Throws
  // ExitCode::kConfig naming the pattern that matches none. `counts`: whether this rank's slots are counted: of ranks
  // that hold the same slices, one must be.
  ValueWatch(const std::vector<std::string>& patterns, int64_t every, Module& model, Communicator& comm, bool counts);

  bool is_due(int64_t step) const { return step % every_ == 0; }
  // Around the forward passes of a step's micro-batches.
  void begin_passes();
  void begin_micro(int64_t index) { micro_ = index; }
  void end_passes();
  // Of a step's slots, between its exchanges and the update, and after the update.
  void before_update(const std::vector<Slot>& slots);
  void after_update(const std::vector<Slot>& slots);
  // What all ranks saw, on rank 0. Values are by key of the metrics: "watch/blocks.0/rms", ".../mean", ".../largest",
  // ".../zeros" (the share of exact zeros), ".../nonfinite" (how many, where there are any) of modules;
  // "watch/blocks.0.qkv.weight/grad_rms", ".../grad_largest", ".../update_ratio" (the norm of the update by that of the
  // values) of parameters. Six significant digits: the order of the sums of parameters depends on the layout. Warns
  // once for each module that gives zeros alone and each value that is not finite. Collective.
  Seen finish(int64_t step);

 private:
  struct Sums {
    double count = 0, sum = 0, squares = 0, largest = 0, zeros = 0, nonfinite = 0;
    void add(const float* values, int64_t n);
    void add(const Sums& other);
  };
  using Key = std::pair<std::string, int64_t>;  // name, and micro-batch or first element
  void add(const std::string& name, int64_t part, const std::vector<float>& values);
  Seen seen_in(const std::map<Key, Sums>& all, const std::map<std::string, Histogram>& histograms, int64_t step);

  const int64_t every_;
  Communicator& comm_;
  const bool counts_;
  std::vector<Module*> modules_;
  std::set<std::string> parameters_;
  int64_t micro_ = 0;
  std::map<Key, Sums> sums_;
  std::map<std::string, Histogram> histograms_;  // whose parts may be added in any order
  std::map<std::string, std::vector<float>> before_;
  std::set<std::string> warned_;
};

}  // namespace lockstep
