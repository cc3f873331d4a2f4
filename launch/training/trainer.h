// Trainer: one rank's part of a training run: data, model, DataParallel and optimizer, step by step.
// Owned by the command that trains or measures; borrows settings, datasets and communicator.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "core/device/graph.h"
#include "core/io/checkpoint.h"
#include "core/models/model.h"
#include "data/loader.h"
#include "launch/config/settings.h"
#include "launch/training/sentinel.h"
#include "launch/world/fail_together.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "sharding/data_parallel.h"

namespace lockstep {

struct StepReport {
  int64_t step = 0;  // done, from 1
  StepResult result;
  double lr = 0;
  int64_t items = 0;  // tokens or images, of all ranks
  double step_ms = 0, data_ms = 0, forward_ms = 0, backward_ms = 0,
         optimizer_ms = 0;          // exposed communication is in result
  std::vector<Transfer> transfers;  // of each group's parameters and gradients
};

struct EvalReport {
  double loss = 0;       // mean over targets
  double accuracy = -1;  // part of the targets that were the likeliest; negative where the model is no classifier
  int64_t targets = 0;
};

// The datasets of a run, opened once a process: ranks that are its threads share them.
class SharedData {
 public:
  SharedData(const App& app, const Settings& settings) : app_(app), settings_(settings) {}
  // Collective. Where settings.data.measured is set, refuses data that has no such part.
  const Datasets& open(Communicator& comm);

 private:
  const App& app_;
  const Settings& settings_;
  std::mutex mutex_;
  std::unique_ptr<Datasets> data_;
};

class Trainer {
 public:
  // Builds everything; all ranks compare version, configuration, parameters and data, and a difference throws
  // ExitCode::kRanksDisagree naming keys and ranks. Collective. `measured`: what the model is built for where it is
  // only measured: there is then no optimizer, no step and no state beside parameters. Throws ExitCode::kConfig where
  // no target counts in a part of the data.
  Trainer(const Settings& settings, const Datasets& data, Communicator& comm,
          const std::optional<TaskSpec>& measured = {});
  ~Trainer();

  StepReport step(bool stop = false) {
    launch(stop);
    return finish();
  }
  int64_t steps_done() const { return info_.step; }
  // The same in two parts: a GPU has the next step's work before the host waits for this one's outcome. All else
  // (evaluate, mine, info) speaks of the steps launched, or finished, and wants them to be the same.
  void launch(bool stop);
  StepReport finish();  // of the oldest that is under way
  int64_t steps_launched() const { return info_.step + static_cast<int64_t>(under_way_.size()); }
  // May a step be launched now? Where the host is the device, or must know a step's outcome for the next one (the loss
  // scale of fp16), or verifies the state that it leaves, only when none is under way.
  bool may_launch() const;
  // Over the validation part; the same bits at every number of ranks. Collective.
  EvalReport evaluate();
  bool has_validation() const { return data_.validation != nullptr; }

  // All state of `checkpoint`; refuses (kBadData, kConfig) another model, other data or other mathematics.
  void resume(const Checkpoint& checkpoint);
  void load_parameters(const Checkpoint& checkpoint);
  // What this rank writes to a checkpoint, beside info(): together the ranks' cover the state once. Views of memory
  // that the next step changes.
  std::vector<StateEntry> entries_to_save() const;

  // Parameters and moments that this rank holds, by name and slice; the memory is the run's own.
  std::vector<StateEntry> state() const;
  // Do several ranks hold the same state, or whole copies of the parameters, so that verify.every can compare them?
  bool has_replicas() const { return parallel_->mesh().replicas() > 1 || has_whole_copies(); }

  std::string items_unit() const;  // "tokens" or "images"
  int64_t parameter_count() const { return parallel_->parameter_count(); }
  double flops() const { return model_->flops() * static_cast<double>(settings_.batch.global); }  // of a step
  const CheckpointInfo& info() const { return info_; }

 private:
  // The step as a GPU's graph, where that looks for its data, and what it found when it was recorded.
  struct RecordedStep {
    explicit RecordedStep(Stream& stream) : graph(stream) {}
    StreamGraph graph;
    std::vector<MicroBatch> mine;
    PendingStep outcome;
  };
  struct UnderWay {
    StepReport report;
    PendingStep outcome;
    Cursor next;  // of the data
    std::chrono::steady_clock::time_point begun;
    bool recorded = false;
    std::vector<StateEntry> copies;  // names of whole copies, where they are verified, and what
    std::vector<Hash128> digests;    // the step computed with
  };

  bool has_whole_copies() const { return comm_.size() > 1 && !parallel_->whole_copies().empty(); }
  bool verifies_after(int64_t step) const;
  void check_at_rest(const char* what) const;
  void preflight();
  void require_targets(bool measures) const;
  void start_loader();
  Tensor input_of(const MicroBatch& m) const;
  PendingStep run(const StepBatch& batch, const std::vector<MicroBatch>& mine, bool stop, StepReport& report,
                  UnderWay* verified = nullptr);
  StepResult outcome_of(const UnderWay& step);
  PendingStep run_recorded(const StepBatch& batch, bool stop, StepReport& report);

  const Settings& settings_;
  const Datasets& data_;
  Communicator& comm_;
  const int exceptions_;  // under way when this was made
  std::unique_ptr<Model> model_;
  std::unique_ptr<DataParallel> parallel_;
  std::vector<Slot> slots_;  // with rules applied; gradients are refreshed each step
  std::unique_ptr<Optimizer> optimizer_;
  LossScale loss_scale_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Sentinel> sentinel_;       // of the state, where settings ask for it and replicas are there
  std::unique_ptr<Sentinel> copy_sentinel_;  // of whole copies of parameters, where they are not that state
  CheckpointInfo info_;
  int64_t targets_per_sample_ = 1;
  bool runs_ahead_ = false;
  std::deque<UnderWay> under_way_;
  std::chrono::steady_clock::time_point finished_at_;
  int64_t steps_here_ = 0;                  // by this process
  std::unique_ptr<RecordedStep> recorded_;  // where settings ask for it
};

TaskSpec task_of(const DataSpec& spec);
// For checkpoints: "byte", or "char" and the characters; "" where samples are no text. And back; null for "".
std::string vocabulary_text(const Vocabulary* vocabulary);
std::unique_ptr<Vocabulary> parse_vocabulary(const std::string& text);

}  // namespace lockstep
