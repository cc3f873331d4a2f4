// StepPhases: what updates a task's parameters in each phase of a step: an optimizer, and where settings ask for it an
// average (optim.ema). Owned by the trainer, or by a loop of one's own; borrows DataParallel.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tasks/task.h"
#include "launch/config/settings.h"
#include "optim/weight_average.h"
#include "sharding/data_parallel.h"

namespace lockstep {

class StepPhases {
 public:
  // Throws ExitCode::kConfig where a phase has no parameter that is trained, kInternal where a parameter has no phase
  // or several.
  StepPhases(const std::vector<StepPhase>& phases, const Settings& settings, DataParallel& parallel);

  size_t count() const { return phases_.size(); }
  const std::string& module(size_t phase) const { return phases_[phase].module; }

  // The parts of Optimizer::step(): of all phases, of one, and of one.
  void prepare(double lr);
  void update(size_t phase, const Tensor& verdict);
  void settle(size_t phase, bool skipped);
  void set_copies(CopiesBeside* copies);        // Optimizer's, of all
  void set_observer(UpdateObserver* observer);  // likewise

  std::vector<int64_t> updates() const;  // of each phase
  void set_updates(const std::vector<int64_t>& updates);
  std::vector<StateEntry> state() const;  // moments and averages

  // As WeightAverage has them; nothing where there are no averages. The caller tells DataParallel.
  void restart_averages();
  void swap_averages();

 private:
  struct Phase {
    std::string module;
    std::vector<size_t> slots;  // of DataParallel's, by index
    std::unique_ptr<Optimizer> optimizer;
    std::unique_ptr<WeightAverage> average;
  };
  std::vector<Slot> slots_of(const Phase& phase) const;

  DataParallel& parallel_;
  std::vector<Phase> phases_;
};

// The outcomes of a step's phases, by name, as one: the sum of their losses, the norm of all their gradients, the time
// of all exchanges; finite where each is.
using PhaseResults = std::vector<std::pair<std::string, StepResult>>;
StepResult joined(const PhaseResults& phases);

}  // namespace lockstep
