// The part of PlacedTask that reads state: what init.from names, and parameters of checkpoints, with the frozen ones
// that these name.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "core/base/log.h"
#include "core/base/name_pattern.h"
#include "core/base/trace.h"
#include "core/interop/load_weights.h"
#include "core/kernels/kernels.h"
#include "data/text/vocabulary.h"
#include "launch/checkpoints/open_whole.h"
#include "launch/config/run_data.h"
#include "launch/training/step/placed_task.h"
#include "launch/training/weights/base_weights.h"
#include "launch/training/weights/build_model.h"
#include "launch/world/fail_together.h"
#include "optim/weight_average.h"
#include "sharding/cut_chunks.h"
#include "sharding/mesh.h"

namespace lockstep {

// The frozen parameters of files, whose hash becomes info().base; `trained`: also all others. Collective.
void PlacedTask::read_init(bool trained) {
  std::optional<Checkpoint> from;
  if (!settings_.pretrained) from = open_whole(comm_, settings_.init.from);
  const Checkpoint* checkpoint = from ? &*from : nullptr;
  const std::vector<StateEntry> base = parallel_->base_state();
  Hash128 mine;
  fail_together(comm_, [&] {
    const std::vector<StateEntry> state = parallel_->state();
    if (from) require_vocabulary_of(*from);
    if (trained) read_initial(settings_, checkpoint, state, base);
    if (!base.empty()) mine = read_initial(settings_, checkpoint, base, state);
  });
  if (base.empty()) return;
  if (parallel_->mesh().replica().index != 0) mine = {};  // the same slices as in replica 0
  info_.base = to_hex(sum_of_shares(mine, comm_, "hash of init.from"));
}

// What init.adapter must hold.
std::vector<StateEntry> PlacedTask::entries_of_adapter() const {
  std::vector<StateEntry> out;
  for (const StateEntry& e : parallel_->state())
    if (is_lora_parameter(e.name) || matches_any(settings_.lora.train, name_in_model(e.name))) out.push_back(e);
  return out;
}

void PlacedTask::require_tokenizer_of_folder() const {
  const auto ours = parse_vocabulary(info_.vocabulary);
  if (!settings_.pretrained || settings_.init.other_tokenizer || !ours) return;
  const std::string& folder = settings_.pretrained->folder;
  const std::string difference = tokenizer_difference(folder, *ours);
  require(difference.empty(), ExitCode::kBadData, folder, ": its tokenizer is not that of the data: ", difference,
          "; import the data with --tokenizer ", folder,
          ", or set init.other_tokenizer: true to learn anew what each token means");
}

// Of adapters with dora: the lengths of the rows of the weights that they adapt.
void PlacedTask::begin_magnitudes() {
  std::vector<StateEntry> all = parallel_->state();
  for (StateEntry& e : parallel_->base_state()) all.push_back(std::move(e));
  const BaseWeights weights(settings_, task_->module(), all);
  std::map<std::string, Shape> shapes;
  for (const StateEntry& e : all) shapes[e.name] = e.region.shape;
  for (const StateEntry& e : all) {
    if (!e.name.starts_with(kParameters) || !e.name.ends_with(kLoraMagnitude) || e.data.numel() == 0) continue;
    check(e.region.is_whole(), e.name, " is cut by elements");
    const LayerPart part = split_part(e.name.substr(0, e.name.size() - kLoraMagnitude.size()));
    const std::string name = part.layer + ".weight";
    const Shape& shape = shapes.at(name);
    const int64_t first = part.index * (shape[0] / part.count) + e.offset;
    std::vector<float> lengths;
    const auto read = [&](IndexRange range, float* values) { weights.read(name, shape, range, values); };
    for_rows(shape, {first, first + e.data.numel()}, read, [&](int64_t row, const float* values) {
      double squares = 0;
      for (int64_t i = 0; i < shape[1]; ++i) squares += static_cast<double>(values[i]) * values[i];
      require(squares > 0, ExitCode::kBadData, settings_.init.from, ": row ", row, " of ", name_in_model(name),
              " is zero, which has no length to be trained (lora.dora); leave this layer out of lora.targets");
      lengths.push_back(static_cast<float>(std::sqrt(squares)));
    });
    const auto count = static_cast<int64_t>(lengths.size());
    e.set_values(0, Tensor::of(std::move(lengths), {count}));
  }
}

void PlacedTask::load_initial() {
  fail_together(comm_, [&] { require_tokenizer_of_folder(); });
  read_init(true);
  fail_together(comm_, [&] {
    if (settings_.lora.dora && !settings_.adapter) begin_magnitudes();
    if (settings_.adapter) load_weights(*settings_.adapter, entries_of_adapter());
    parallel_->state_was_loaded();
  });
}

void PlacedTask::load_base_of(const Checkpoint& c) {
  if (c.info.base.empty() && parallel_->base_state().empty()) return;
  read_init(false);
  require_base_of(settings_, c, info_.base);
}

void PlacedTask::require_vocabulary_of(const Checkpoint& c) const {
  const auto theirs = parse_vocabulary(c.info.vocabulary), ours = parse_vocabulary(info_.vocabulary);
  if (theirs && ours)  // a token must mean what the parameters learnt
    if (const std::string difference = first_difference(*theirs, *ours); !difference.empty())
      throw Error(ExitCode::kBadData,
                  str(c.dir, ": was trained with another vocabulary than the data's: ", difference,
                      "; import the text with `lockstep data import text ... --vocabulary ", c.dir, "`"));
}

void PlacedTask::load_parameters(const Checkpoint& c, bool averages) {
  require_vocabulary_of(c);
  load_entries(c, parallel_->state());
  if (averages) load_entries(c, averages_of(c, parallel_->state()));
  load_base_of(c);
  parallel_->state_was_loaded();
}

void PlacedTask::require_weights_of_folder() const {
  require_tokenizer_of_folder();
  std::vector<StateEntry> all = parallel_->state();
  for (StateEntry& e : parallel_->base_state()) all.push_back(std::move(e));
  require_weights_for(*settings_.pretrained, WeightFiles::open(settings_.pretrained->folder),
                      held_by_init(settings_, all));
  if (settings_.adapter)
    require_weights_for(*settings_.adapter, WeightFiles::open(settings_.adapter->folder), entries_of_adapter());
}

}  // namespace lockstep
