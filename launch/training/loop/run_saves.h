// RunSaves: when a run saves, and what it does where that fails. Owned by the Run of each rank.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "launch/checkpoints/checkpoint_mirror.h"
#include "launch/checkpoints/saver.h"
#include "launch/recovery/memory_recovery.h"
#include "launch/training/step/trainer.h"

namespace lockstep {

class RunSaves {
 public:
  // Collective. `before_write`: Saver's.
  // `memory`: of a run that keeps its state there, too; else null. It outlives this. `per_machine`: run.dir is one of
  // each machine's own.
  RunSaves(const Settings& settings, Communicator& comm, const Trainer& trainer, MemoryRecovery* memory,
           bool per_machine, std::function<void(int64_t step)> before_write);

  bool after(int64_t step) const;  // whether that step is saved, by checkpoint.every or as the last one
  bool is_due() const;             // by checkpoint.every_minutes and rank 0's clock

  // A save goes on beside the next steps; its success is known when the next one begins. `must`: waits for it.
  // `evaluated`: just now, so that the checkpoint has the validation loss. Throws where kFailedSaves saves in a row
  // failed for lack of storage, and what Saver throws else.
  void save(const ValidationRecord& validation, bool must, bool evaluated);
  void finish();  // waits for the save in progress, and passes over a lack of storage
  // Waits until the last save is in checkpoint.mirror, where that is asked for. Throws ExitCode::kStorage on all ranks
  // where it is not. Collective.
  void finish_mirror();
  // Where the run goes on: its checkpoint of that step is to be in the mirror, and is not there. Collective.
  void mirror_what_is_due(int64_t step);
  void before_change() { saver_->let_change(); }  // the state that is saved changes next
  // On rank 0, logs the saves that were completed since the last call, and returns them.
  std::vector<SaveReport> completed();

 private:
  bool tolerate(const std::function<void()>& action);
  bool mirrors(int64_t step) const;

  const Settings& settings_;
  Communicator& comm_;
  const Trainer& trainer_;
  MemoryRecovery* const memory_;
  std::unique_ptr<CheckpointMirror> mirror_;  // where one is asked for; the saver tells it what is whole
  std::atomic<int64_t> last_{-1};             // the step of a save that is waited for
  std::unique_ptr<Saver> saver_;
  int failed_ = 0;
  std::chrono::steady_clock::time_point saved_at_ = std::chrono::steady_clock::now();
};

}  // namespace lockstep
