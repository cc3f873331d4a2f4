#include "launch/predict/predictor.h"

#include <algorithm>

#include "core/interop/hf_family.h"
#include "core/interop/hf_model.h"
#include "launch/config/run_data.h"
#include "launch/text/find_vocabulary.h"
#include "launch/training/weights/build_model.h"

namespace lockstep {
namespace {

Predictor predictor_of_run(const App& app, const std::string& run, const std::vector<std::string>& overrides) {
  Predictor out;
  out.checkpoint = open_newest(run, false);
  const Checkpoint& c = *out.checkpoint;
  out.place = c.dir;
  out.settings = settings_of_checkpoint(app, c, overrides);
  out.data = known_data_of_run(app, c);
  out.input = c.info.input;
  return out;
}

// What a folder of transformers was trained on, as far as it says so.
std::shared_ptr<const LikeData> data_of_model(const HfModel& model) {
  auto out = std::make_shared<LikeData>();
  out->name = model.folder;
  require(model.table->use != HfUse::kLabels, ExitCode::kUsage, model.folder, ": a folder of ", model.family,
          " does not say what its outputs are of; make a run of it, by init.from and train.steps=0 with data that has "
          "its labels, and predict by that run");
  if (model.table->use == HfUse::kText) {
    out->vocabulary = find_vocabulary(model.folder, PlainFile::kJson);
    out->schema.classes = model.task.vocabulary > 0 ? model.task.classes : 0;
    return out;
  }
  const auto images = data_of_folder(model);
  require(images && !images->schema.mean.empty(), ExitCode::kBadData, model.folder,
          ": has no preprocessor_config.json that says how images are normalised");
  *out = *images;
  out->schema.classes = model.task.classes;
  return out;
}

Predictor predictor_of_folder(const App& app, const std::string& folder) {
  Predictor out;
  out.place = folder;
  out.settings = settings_of_pretrained(app, folder);
  const HfModel& model = *out.settings->pretrained;
  out.data = data_of_model(model);
  out.input = model.task.input;
  if (out.input.rank() == 1) out.settings->data.context = out.input[0];
  return out;
}

}  // namespace

Predictor open_predictor(const App& app, const std::string& from, const std::vector<std::string>& overrides) {
  const bool folder = is_hf_folder(from);
  require(!folder || overrides.empty(), ExitCode::kUsage, "init.from=PATH is for runs and checkpoints; ", from,
          " is a folder of transformers: leave init.from out");
  Predictor out = folder ? predictor_of_folder(app, from) : predictor_of_run(app, from, overrides);
  out.settings->train.eval_ema = false;
  out.settings->train.class_weights.clear();  // of a loss, which nobody computes
  return out;
}

int64_t samples_at_once(const DataSpec& spec) {
  const int64_t values = spec.input().shape.numel() * (spec.next_tokens ? ceil_div(spec.classes, 64) : 1);
  return std::clamp<int64_t>((1 << 16) / values, 1, 1024);
}

}  // namespace lockstep
