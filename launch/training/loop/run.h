// Run: one rank's training run, from the first step to the last: steps, validation, checkpoints, requests to stop, and
// on rank 0 the run directory, with observers of each step. Owned by the command; borrows settings, data and
// communicator.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/records/run_dir.h"
#include "launch/recovery/memory_recovery.h"
#include "launch/training/guards/chaos.h"
#include "launch/training/loop/run_observer.h"
#include "launch/training/loop/run_saves.h"
#include "launch/training/profiling/timeline.h"
#include "launch/training/step/trainer.h"
#include "sharding/bucket_size.h"

namespace lockstep {

struct RunStart {
  bool resume = false;   // go on from the newest valid checkpoint of run.dir, or start if there is none
  int64_t at_most = -1;  // a resumed run goes on from no later step; negative: from any
  int64_t attempt = 1;   // attempt_of_job()
  int64_t until = -1;  // end after this step, saved and measured, as one step of a run of train.steps; negative: go on
  std::vector<MakeObserver> observers = {metrics_observer, tensorboard_observer, about_observer, spike_observer,
                                         memory_observer};
};

class Run {
 public:
  // Sets all up, resumes or loads initial weights. Collective. Throws what Trainer and RunDir throw, kOutputLocked
  // where a machine does not see run.dir, kConfig where an option needs validation data that is not there, kStorage
  // where checkpoints do not fit.
  Run(const Settings& settings, const Datasets& data, Communicator& comm, const RunStart& options);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Trains until the last step or `until`, or until the run is asked to stop or out of patience. Returns the exit code:
  // 0, or kSaved where steps are left. Collective.
  int go();

  // How far the run of this thread's rank came, for failure.json: known once a Run has ended.
  struct Reached {
    int64_t step = -1, equal_step = -1;  // as in Failure
    bool miscomputes = false;
  };
  static Reached reached();

 private:
  void open_directory(const RunStart& options);
  void require_validation();
  void choose_best();
  bool resume_newest(int64_t at_most);
  std::optional<Checkpoint> newest(int64_t at_most);
  std::optional<Checkpoint> newest_on_disk(int64_t at_most);
  int64_t checkpoints_between(const std::string& dir, int64_t after, int64_t at_most);
  CheckpointInfo info() const;  // of the trainer, with what the run knows
  void save_what_was_due();
  void require_space() const;
  void warn_of_settings() const;
  void say_nothing_is_left() const;
  void observe(const RunStart& options, const std::vector<int>& machines);

  bool is_last(int64_t step) const { return step == settings_.train.steps; }
  int64_t end() const { return until_ < 0 ? settings_.train.steps : std::min(until_, settings_.train.steps); }
  bool evaluates_after(int64_t step) const;  // as a run does that is not ended by `until`
  bool measures_after(int64_t step) const {
    return evaluates_after(step) || (trainer_.has_validation() && step == end());
  }
  bool saves_best_after(int64_t step) const;  // once that step is evaluated
  bool out_of_patience() const;
  bool no_steps_in_progress() const { return trainer_.steps_started() == trainer_.steps_done(); }
  bool may_start() const;
  bool trace_is_asked();
  void make_timeline(int64_t first, int64_t last);
  void after_step(const StepReport& step);
  EvalReport evaluate(int64_t step);
  void check_skips(const StepReport& step);
  void check_validation() const;
  void say_end() const;
  std::string evaluation_text() const;

  const Settings& settings_;
  Communicator& comm_;
  const int64_t until_;
  const Chaos chaos_;
  Trainer trainer_;
  std::unique_ptr<RunDir> dir_;               // on rank 0
  std::unique_ptr<RunDir> mirror_dir_;        // there, too: checkpoint.mirror
  std::unique_ptr<RunDir> machine_dir_;       // on the first rank of every other machine, where each has a run.dir
  bool per_machine_ = false;                  // of its own
  std::unique_ptr<MemoryRecovery> recovery_;  // where recovery.from is memory
  std::unique_ptr<RunSaves> saves_;           // may read what that one has
  std::vector<std::unique_ptr<RunObserver>> observers_;  // on rank 0
  std::unique_ptr<Timeline> timeline_;                   // where profile.steps or a request asks for it
  std::chrono::steady_clock::time_point looked_at_;      // when rank 0 last looked for a request of a timeline, and
  int64_t traced_steps_ = 0;                             // of how many steps there is one
  BucketSizeAdvice waits_;
  int64_t timed_ = 0;
  ValidationRecord validation_;
  std::chrono::steady_clock::time_point begun_;
  std::chrono::duration<double> evaluated_for_{0};
  bool from_memory_ = false;  // where it goes on
  bool stopped_ = false;      // asked to, and all ranks know it
  bool save_asked_ = false;   // after the last of the steps that are under way
};

}  // namespace lockstep
