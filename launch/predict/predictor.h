// Predictor: a checkpoint or a folder of transformers, opened for prediction, with the description of its training
// data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/state/checkpoint.h"
#include "data/samples/dataset.h"
#include "data/samples/schema.h"
#include "launch/app.h"
#include "launch/config/settings.h"

namespace lockstep {

struct Predictor {
  std::string place;  // for messages
  std::optional<Checkpoint> checkpoint;
  std::unique_ptr<Settings> settings;
  std::shared_ptr<const LikeData> data;  // that it was trained on
  Shape input;                           // of a sample
};

// Of a run directory (its newest checkpoint), a checkpoint, or a folder of transformers. `overrides`: of a checkpoint's
// configuration, such as "init.from=PATH". Throws ExitCode::kUsage for overrides of a folder and for a folder that does
// not say what its outputs are of, and what opening it throws.
Predictor open_predictor(const App& app, const std::string& from, const std::vector<std::string>& overrides = {});

// So many samples that a micro-batch is worth its overhead, and has little memory; each token of a text has a number
// for each of the vocabulary in the model's output.
int64_t samples_at_once(const DataSpec& spec);

}  // namespace lockstep
