// Trainer: one rank's part of a training run: data, a placed task and its optimizer, step by step.
// Owned by the command that trains or measures; borrows settings, datasets and communicator.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "core/state/checkpoint.h"
#include "data/streams/loader.h"
#include "launch/config/settings.h"
#include "launch/training/evaluation/reference.h"
#include "launch/training/evaluation/task_scores.h"
#include "launch/training/guards/chaos.h"
#include "launch/training/guards/memory_check.h"
#include "launch/training/guards/recheck.h"
#include "launch/training/guards/sentinel.h"
#include "launch/training/guards/value_watch.h"
#include "launch/training/step/global_batch.h"
#include "launch/training/step/placed_task.h"
#include "launch/training/step/recorded_step.h"
#include "launch/training/step/step_phases.h"
#include "launch/training/step/trial_pass.h"
#include "optim/loss_scale.h"
#include "sharding/data_parallel.h"
#include "sharding/mesh.h"
#include "sharding/transfer_log.h"

namespace lockstep {

struct StepReport {
  int64_t step = 0;     // done, from 1
  StepResult result;    // of several phases: joined()
  PhaseResults phases;  // where there are several
  double lr = 0;
  int64_t items = 0;  // tokens, images or the like, of all ranks
  double step_ms = 0, data_ms = 0, forward_ms = 0, backward_ms = 0,
         optimizer_ms = 0;          // exposed communication is in result
  ValueWatch::Seen watched;         // of train.watch, on rank 0, in its steps
  std::vector<Transfer> transfers;  // of each bucket's parameters and gradients
};

class Trainer {
 public:
  // What PlacedTask does, then the optimizer, the loader and the rest. Collective. Throws what that throws, and
  // ExitCode::kConfig where a phase has nothing to train or a step cannot be recorded.
  Trainer(const Settings& settings, const Datasets& data, Communicator& comm);
  ~Trainer();

  // Faults for the steps from now on; outlives the trainer.
  void set_chaos(const Chaos* chaos) { chaos_ = chaos; }
  // Called in each step before the host changes the state of the step before, and, once nothing can be found wrong
  // with the step's gradients any more, before the update itself.
  void set_before_change(std::function<void()> call) { before_change_ = std::move(call); }
  void set_before_update(std::function<void()> call) { before_update_ = std::move(call); }
  // Where the host's updates write the state a second time; outlives the trainer.
  void set_copies(CopiesBeside* copies) { phases_->set_copies(copies); }

  StepReport step() {
    start();
    return finish();
  }
  int64_t steps_done() const { return info_.step; }
  // The same in two parts: a GPU has the next step's work before the host waits for this one's outcome. All else
  // (evaluate, mine, info) is about finished steps, and needs that none is under way.
  void start(const StepRequests& requests = {});
  StepReport finish();  // of the oldest that is under way
  int64_t steps_started() const { return info_.step + static_cast<int64_t>(under_way_.size()); }
  // May a step be started now? Where the host is the device, or must know a step's outcome for the next one (the loss
  // scale of fp16), or verifies the state that it leaves, only when none is under way.
  bool may_start() const;
  // Over the validation part, by the averages of the parameters where train.eval_ema says so; the same bits at every
  // number of ranks. Collective.
  EvalReport evaluate();
  bool has_validation() const { return data_.validation != nullptr; }
  bool weighs_samples() const { return data_.train->spec().find(kSampleWeights) != nullptr; }
  bool weighs_validation() const { return data_.validation && data_.validation->spec().find(kSampleWeights); }

  // All state of `checkpoint`; refuses (kBadData, kConfig) another model, other data or other mathematics. Collective.
  void resume(const Checkpoint& checkpoint);
  void load_parameters(const Checkpoint& checkpoint, bool averages = false);  // as PlacedTask; collective
  void load_initial();
  // Where the reference of a task of preferences is kept for a resumed run.
  void keep_reference_at(const std::string& path) { reference_.set_file(path, true); }
  // What resume() refuses by the checkpoint's manifest alone, before it reads tensors. Returns the differences that are
  // accepted, of which rank 0 warns.
  std::vector<ConfigDifference> require_resumable(const Checkpoint& checkpoint) const;
  const PlacedTask& placed() const { return placed_; }
  // What this rank writes to a checkpoint, beside info(): together the ranks' cover the state once. Views of memory
  // that the next step changes.
  std::vector<StateEntry> entries_to_save() const;
  // Those that hold the same state as this rank, by the machines that they are on. `machine_of`: by rank.
  struct Replicas {
    int index = 0, size = 1;        // among those of this rank's machine
    int machine = 0, machines = 1;  // this machine's place among theirs
    bool even = true;               // as many on each of these
  };
  Replicas replicas(const std::vector<int>& machine_of) const;
  // Where every machine keeps all that its ranks hold: this rank's share of that, which it divides with replicas of its
  // machine.
  std::vector<StateEntry> entries_of_machine(const std::vector<int>& machine_of) const;

  // Parameters and moments that this rank holds, by name and slice; the memory is the run's own.
  std::vector<StateEntry> state() const;
  // Do several ranks hold the same state, or whole copies of the parameters, so that verify.every can compare them?
  bool has_replicas() const { return parallel_.mesh().replica().size > 1 || has_whole_copies(); }
  // The last step after which verify.every found all of that equal; -1: none by this process.
  int64_t last_equal_step() const;
  // Was this rank's processor found to compute wrongly?
  bool miscomputes() const { return recheck_ && recheck_->miscomputes(); }

  std::string items_unit() const { return data_.train->spec().unit; }  // "tokens", "images"
  int64_t samples_per_epoch() const { return data_.train->size(); }
  int64_t items_per_sample() const { return data_.train->spec().units; }
  std::string backend() const { return std::string(comm_.backend()); }
  int64_t parameter_count() const { return parallel_.parameter_count(); }
  double flops() const { return task_.flops() * static_cast<double>(settings_.batch.global); }  // of a step
  const std::string& task_kind() const { return task_.kind(); }
  const TaskScores& task_scores() const { return *task_scores_; }  // of train.eval_tasks
  const TrialPass& trial() const { return trial_; }                // of rank 0; empty on a device without bytes
  const CheckpointInfo& info() const { return info_; }

 private:
  struct UnderWay {
    StepReport report;
    PendingStep outcome;
    Cursor next;  // of the data
    std::chrono::steady_clock::time_point begun;
    bool recorded = false;
    std::vector<StateEntry> copies;  // names of whole copies, where they are verified, and what
    std::vector<Hash128> digests;    // the step computed with
  };

  bool has_whole_copies() const { return comm_.size() > 1 && !parallel_.whole_copies().empty(); }
  bool rechecks_in(int64_t step) const;
  bool watches_in(int64_t step) const { return watch_ && watch_->is_due(step); }
  bool verifies_after(int64_t step) const;
  std::vector<StateEntry> compared_state() const;
  void compare_state(int64_t step);
  bool checks_memory_after(int64_t step) const { return memory_check_ && memory_check_->is_due(step); }
  void check_at_rest(const char* what) const;
  void parameters_were_loaded();
  void make_reference();
  void make_phases();
  void make_task_scores();
  void require_recordable() const;
  LoaderOptions loader_options() const;
  void start_loader();
  StepBatch next_batch();
  std::optional<GlobalBatchLoss> loss_of_all(const StepBatch& batch, StepReport& report);
  PendingStep run(const StepBatch& batch, const std::vector<MicroBatch>& mine, const StepRequests& requests,
                  StepReport& report, UnderWay* verified = nullptr);
  PendingStep run_phase(size_t index, const StepBatch& batch, const std::vector<MicroBatch>& mine,
                        const StepRequests& requests, StepReport& report, UnderWay* verified);
  void compute_apart(size_t phase, const StepBatch& batch, int64_t micro, const std::optional<GlobalBatchLoss>& of_all,
                     int64_t step, const GradientSink& sink);
  Tensor loss_of(size_t phase, const MicroBatch& micro, const std::optional<GlobalBatchLoss>& of_all,
                 double loss_gradient);
  StepResult outcome_of(const UnderWay& step);
  void swap_averages();

  const Settings& settings_;
  Reference reference_;
  const Datasets& data_;  // with that
  Communicator& comm_;
  const int exceptions_;  // under way when this was made
  PlacedTask placed_;
  Task& task_;  // these three are placed_'s
  DataParallel& parallel_;
  CheckpointInfo& info_;
  std::unique_ptr<StepPhases> phases_;
  TrialPass trial_;
  LossScale loss_scale_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Sentinel> sentinel_;         // of the state, where settings ask for it and replicas are there
  std::unique_ptr<Sentinel> copy_sentinel_;    // of whole copies of parameters, where they are not that state
  std::unique_ptr<MemoryCheck> memory_check_;  // of this rank's state, where settings ask for it
  std::unique_ptr<Recheck> recheck_;           // of gradients, where settings ask for it and there are several ranks
  std::unique_ptr<TaskScores> task_scores_;
  std::unique_ptr<ValueWatch> watch_;  // where train.watch asks for it
  const Chaos* chaos_ = nullptr;
  std::function<void()> before_change_, before_update_;
  bool runs_ahead_ = false;
  std::deque<UnderWay> under_way_;
  std::chrono::steady_clock::time_point finished_at_;
  double busy_ms_ = 0;                      // of the last step that was finished, without waiting for other ranks
  int64_t steps_here_ = 0;                  // by this process
  std::unique_ptr<RecordedStep> recorded_;  // where settings ask for it
};

}  // namespace lockstep
