#include "launch/training/weights/load_model.h"

#include <optional>
#include <vector>

#include "core/interop/load_weights.h"
#include "core/state/weight_coder.h"
#include "launch/training/weights/build_model.h"
#include "optim/weight_average.h"

namespace lockstep {
namespace {

std::unique_ptr<Model> placed_model(const Settings& settings, const TaskSpec& task) {
  auto model = build_model(settings, task);
  place_parameters(*model, 1);
  model->eval();
  return model;
}

// Weights that the run had in codes become what these decode to.
void round_coded(const Settings& settings, Model& model, const std::vector<StateEntry>& whole) {
  for (const std::string& name : coded_weights(settings, model))
    for (const StateEntry& e : whole) {
      if (e.name != str(kParameters, name)) continue;
      std::vector<float> values = e.values(0, e.data.numel()).to_vector<float>();
      const WeightCoder coder = coder_of(settings.parallel.coding(), e.region.shape, [&](IndexRange r, float* out) {
        std::copy(values.begin() + r.begin, values.begin() + r.end, out);
      });
      coder.round(0, values.data(), std::ssize(values));
      e.set_values(0, Tensor::of(values, {std::ssize(values)}));
    }
}

}  // namespace

std::unique_ptr<Model> load_pretrained(const Settings& settings, const TaskSpec& task) {
  auto model = placed_model(settings, task);
  load_weights(*settings.pretrained, entries_of(*model));
  return model;
}

std::unique_ptr<Model> open_model(const Settings& settings, const std::string& path) {
  const auto other = settings.settings_of_path(path);
  const bool bytes = current_device().has_bytes();  // else shapes are all that is asked for
  if (is_pretrained(path))
    return bytes ? load_pretrained(*other, other->pretrained->task) : placed_model(*other, other->pretrained->task);
  const Checkpoint checkpoint = open_newest(path, bytes);
  return bytes ? load_model(*other, checkpoint) : placed_model(*other, task_of(checkpoint.info));
}

std::unique_ptr<Model> load_model(const Settings& settings, const Checkpoint& checkpoint, bool averages) {
  auto model = placed_model(settings, task_of(checkpoint.info));
  const std::vector<StateEntry> entries = entries_of(*model);
  if (checkpoint.info.base.empty()) {
    load_entries(checkpoint, entries);
  } else {
    std::vector<StateEntry> base, own;
    for (const StateEntry& e : entries)
      (e.name.starts_with(kParameters) && settings.parallel.frozen(name_in_model(e.name)) ? base : own).push_back(e);
    load_entries(checkpoint, own);
    const auto from = settings.pretrained ? std::nullopt : std::optional(open_newest(settings.init.from));
    require_base_of(settings, checkpoint, to_hex(read_initial(settings, from ? &*from : nullptr, base, own)));
    round_coded(settings, *model, base);
  }
  if (averages) load_entries(checkpoint, averages_of(checkpoint, entries));
  return model;
}

}  // namespace lockstep
