// DataParallel: one model's replicas, trained as one. It places the parameters in groups, collects gradients during
// backward, exchanges them in a fixed order, and hands out Slots for an optimizer. Owned by the trainer or a loop of
// one's own; owns the groups, borrows model and communicator. Knows nothing of optimizers or data.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "core/io/state.h"
#include "core/nn/module.h"
#include "core/nn/slot.h"
#include "sharding/options.h"
#include "sharding/param_group.h"

namespace lockstep {

// The outcome of a step, the same on every rank.
struct StepResult {
  double loss = 0;        // mean over the step's targets
  double grad_norm = 0;   // of the mean gradient, before clipping
  int64_t targets = 0;    // that counted
  bool finite = true;     // else the optimizer must skip this step
  std::string nonfinite;  // the first parameter whose gradient is not finite, or "loss"
  double grad_scale = 1;  // what the optimizer multiplies gradients with: count correction times clipping
  double exposed_ms = 0;  // time spent waiting for communication
  bool stop = false;      // some rank asked to stop after this step
};

class DataParallel {
 public:
  // Names the tree, places and initialises parameters. Collective.
  DataParallel(Module& model, Communicator& comm, DataParallelOptions options);
  ~DataParallel();

  // A step of micro_count micro-batches in all begins. `nominal_targets` is the constant by which backward divides: the
  // targets of a full, unpadded step.
  void begin_step(int64_t micro_count, int64_t nominal_targets);
  // The micro-batches that this rank must run, in this order.
  std::vector<int64_t> my_micro_batches() const;
  // Runs backward from the summed loss of micro-batch `index` with `targets` counted targets; exchanges what becomes
  // ready meanwhile.
  void backward(int64_t index, const Tensor& loss, int64_t targets);
  // Completes the exchange. Clips by the global norm where clip_norm > 0. `stop`: this rank was asked to stop; all
  // learn of it.
  StepResult finish_step(double clip_norm = 0, bool stop = false);

  // One for each trainable parameter, with this step's gradient; valid until the next begin_step.
  const std::vector<Slot>& slots();
  // Parameters by logical name, whole: to load into, and to cut for saving.
  std::vector<StateEntry> state() const;
  // Order of collectives and when each began, in seconds since begin_step; for tests and the timeline.
  struct Launch {
    std::string group;
    double at_s;
  };
  const std::vector<Launch>& launches() const { return launches_; }
  double backward_end_s() const { return backward_end_s_; }
  // Names of parameters that got no gradient in the last step on this rank.
  int unused_in_last_step() const { return unused_; }
  int64_t parameter_count() const;

 private:
  void group_ready(size_t k);
  void launch_ready();
  std::vector<double> norm_nodes(const ParamGroup& group) const;
  double since_begin() const;

  Module& model_;
  Communicator& comm_;
  DataParallelOptions options_;
  std::vector<std::unique_ptr<ParamGroup>> groups_;  // in order of launch: the last of the model first
  std::vector<Slot> slots_;
  std::vector<Launch> launches_;

  int64_t micro_count_ = 0, nominal_ = 1, done_ = 0;
  std::vector<Range> ranges_;
  std::vector<std::pair<Tensor, int64_t>> losses_;  // of my micro-batches: summed loss, targets
  std::vector<bool> ready_;
  size_t next_launch_ = 0;
  int unused_ = 0;
  std::chrono::steady_clock::time_point begun_;
  double backward_end_s_ = 0, exposed_ms_ = 0;
};

}  // namespace lockstep
