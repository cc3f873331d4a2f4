// PlacedTask: one rank's part of a task: its model built, placed by DataParallel and compared with that of the other
// ranks, with what a checkpoint says of it. Enough to load parameters and to measure; a Trainer adds steps. Owned by
// the trainer, or by the command that measures; borrows settings, datasets and communicator.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/state/checkpoint.h"
#include "core/tasks/task.h"
#include "data/streams/open_dataset.h"
#include "launch/config/settings.h"
#include "launch/training/evaluation/evaluate.h"
#include "sharding/data_parallel.h"

namespace lockstep {

class PlacedTask {
 public:
  enum class Use { kTrain, kMeasure, kPredict };  // predictions need no target
  // Builds everything; all ranks compare version, configuration, parameters and data, and a difference throws
  // ExitCode::kRanksDisagree naming keys and ranks. Collective. `shapes`: what the model is built for. Throws
  // ExitCode::kConfig where task, model and data do not fit, samples have weights that the task does not take, or no
  // target counts in a part of the data that is used.
  PlacedTask(const Settings& settings, const Datasets& data, Communicator& comm, const TaskSpec& shapes, Use use);

  Task& task() { return *task_; }
  const Task& task() const { return *task_; }
  DataParallel& parallel() { return *parallel_; }
  const DataParallel& parallel() const { return *parallel_; }
  CheckpointInfo& info() { return info_; }
  const CheckpointInfo& info() const { return info_; }
  std::vector<std::string> parameter_names() const;
  std::vector<std::pair<std::string, Shape>> parameter_shapes() const;  // of the whole tensors, in the same order

  // `averages`: those of the parameters in their place; throws ExitCode::kConfig where it has none. Collective.
  void load_parameters(const Checkpoint& checkpoint, bool averages = false);
  // What init.from names: a checkpoint, or a folder of transformers. Throws kBadData also where the folder's tokenizer
  // is not the data's, without init.other_tokenizer. Collective.
  void load_initial();
  // The frozen parameters that `checkpoint` was trained beside. Collective. Throws kBadData where init.from holds
  // others.
  void load_base_of(const Checkpoint& checkpoint);
  // What these refuse by names and shapes alone, before tensors are read.
  void require_vocabulary_of(const Checkpoint& checkpoint) const;
  void require_weights_of_folder() const;  // of settings.pretrained

  // Over a part of the data; the same bits at every number of ranks. Collective, outside of steps.
  EvalReport evaluate(const Dataset& part, const std::vector<std::string>& more = {});
  // What evaluate() runs with, without metrics.
  EvalOptions eval_options() const;
  // What evaluations measure: of the task's metrics and those of App, what train.metrics names, and `more`. Throws
  // ExitCode::kConfig where it names others.
  std::vector<Metric> metrics(const std::vector<std::string>& more = {}) const;

 private:
  void describe();
  void place();
  void preflight() const;
  void require_weighed() const;
  void require_rows_of_tokens() const;
  void require_targets(Use use) const;
  void require_tokenizer_of_folder() const;  // whose ids must mean what the data's mean
  void read_init(bool trained);
  std::vector<StateEntry> entries_of_adapter() const;
  void begin_magnitudes();

  const Settings& settings_;
  const Datasets& data_;
  Communicator& comm_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<DataParallel> parallel_;
  CheckpointInfo info_;
};

}  // namespace lockstep
