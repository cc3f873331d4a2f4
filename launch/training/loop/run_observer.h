// RunObserver: what sees a run's steps and makes something of them: metrics, TensorBoard files, a display. On rank 0
// alone. Owned by the Run.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "launch/checkpoints/saver.h"
#include "launch/records/run_dir.h"
#include "launch/training/step/trainer.h"

namespace lockstep {

struct RunStep {
  const StepReport& report;
  const EvalReport* validation;          // null where none came after this step
  double validation_s;                   // what it took
  const std::vector<SaveReport>& saved;  // checkpoints that were completed since the step before
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void step(const RunStep& step) = 0;
  virtual void pause() {}        // an evaluation begins, which says how far it is
  virtual void end() {}          // no step follows
  virtual void check_there() {}  // after end(): throws ExitCode::kOutputLocked where what it wrote was removed
};

// What observers are made from, once the run knows its first step.
struct RunView {
  const Settings& settings;
  const Trainer& trainer;
  const RunDir& dir;
  int ranks;
  const std::vector<int>& machines;  // by rank, the first rank of its machine
};
using MakeObserver = std::function<std::unique_ptr<RunObserver>(const RunView& run)>;

std::unique_ptr<RunObserver> metrics_observer(const RunView& run);      // metrics.jsonl
std::unique_ptr<RunObserver> tensorboard_observer(const RunView& run);  // tensorboard/
std::unique_ptr<RunObserver> about_observer(const RunView& run);        // about.json: what the run is made of
std::unique_ptr<RunObserver> memory_observer(const RunView& run);       // profile.memory; null without
std::unique_ptr<RunObserver> spike_observer(const RunView& run);        // names in the log what jumps

}  // namespace lockstep
