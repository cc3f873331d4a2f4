// The model and the task of a configuration, and what of its parameters comes from init.from. Plain functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/state/checkpoint.h"
#include "core/tasks/task.h"
#include "data/samples/dataset.h"
#include "launch/config/settings.h"

namespace lockstep {

// What a model is built for.
TaskSpec task_of(const DataSpec& spec);
TaskSpec task_of(const CheckpointInfo& info);

// Built for this data, with adapters where lora.rank asks for them. Throws ExitCode::kConfig where the task or the
// patterns of lora.targets, lora.train and init.new do not fit the model.
std::unique_ptr<Model> build_model(const Settings& settings, const TaskSpec& task);

// The same, with what is learnt with it, set as the configuration says. Throws ExitCode::kConfig, naming the key, also
// where the data, which `data` describes, does not fit.
// `texts`: what the data's tokens stand for, for metrics; null: not known.
std::unique_ptr<Task> build_task(const Settings& settings, const TaskSpec& data,
                                 const std::shared_ptr<TokenTexts>& texts = nullptr);

// What train.class_weights says: of each class; empty where it is not given. Throws ExitCode::kConfig where it does not
// fit the data.
std::vector<double> class_weights(const Settings& settings, const TaskSpec& data);

// Those of `entries` that init.from holds: not adapters, nor what init.new names.
std::vector<StateEntry> held_by_init(const Settings& settings, const std::vector<StateEntry>& entries);

// The names of the model's weights that precision.frozen keeps in codes; none where it does not. Throws
// ExitCode::kConfig where no weight is such a one, or a layer's shape has no codes of that kind.
std::vector<std::string> coded_weights(const Settings& settings, Module& model);

// Fills `wanted` with what init.from holds of them; these and `others` are all of the model that it must hold. Returns
// what sums up over the ranks of a shard group to digest_of `wanted`, as it is stored. `from`: init.from where that is
// no folder of transformers. Throws ExitCode::kBadData where its tensors are others, and for a checkpoint that names a
// model instead of holding it.
Hash128 read_initial(const Settings& settings, const Checkpoint* from, const std::vector<StateEntry>& wanted,
                     const std::vector<StateEntry>& others);

// Throws ExitCode::kBadData where the frozen parameters of init.from, with the hash `found`, are not those that
// `checkpoint` names.
void require_base_of(const Settings& settings, const Checkpoint& checkpoint, const std::string& found);

}  // namespace lockstep
