// A trained model in one process, for evaluation or text. Plain functions.
#pragma once

#include <memory>

#include "core/models/model.h"
#include "core/state/checkpoint.h"
#include "launch/config/settings.h"

namespace lockstep {

// The model of `settings` with the parameters of `checkpoint`, or with their averages, on the current stream's device,
// for evaluation. Throws ExitCode::kBadData for a checkpoint of another model, kConfig for one without averages.
std::unique_ptr<Model> load_model(const Settings& settings, const Checkpoint& checkpoint, bool averages = false);

// The model of a folder of transformers, settings.pretrained, for data of these shapes. Throws ExitCode::kBadData where
// the folder's tensors do not fit, kConfig where the data has more tokens than the model.
std::unique_ptr<Model> load_pretrained(const Settings& settings, const TaskSpec& task);

// The model of a run directory, a checkpoint or a folder of transformers, beside a run with `settings`: a frozen
// companion, whole on every rank. Throws what opening it throws.
std::unique_ptr<Model> open_model(const Settings& settings, const std::string& path);

}  // namespace lockstep
