// The part of Trainer that reads state: what init.from names, parameters of checkpoints, with the frozen ones that
// these name, and all that a run goes on from.
#include <algorithm>
#include <bit>
#include <optional>

#include "core/base/log.h"
#include "core/base/name_pattern.h"
#include "core/base/trace.h"
#include "core/interop/load_weights.h"
#include "core/kernels/kernels.h"
#include "data/text/vocabulary.h"
#include "launch/artifacts/open_whole.h"
#include "launch/config/resumed_config.h"
#include "launch/config/run_data.h"
#include "launch/training/build_model.h"
#include "launch/training/trainer.h"
#include "launch/world/fail_together.h"
#include "optim/weight_average.h"

namespace lockstep {

// The frozen parameters of files, whose hash becomes info().base; `trained`: also all others. Collective.
void Trainer::read_init(bool trained) {
  std::optional<Checkpoint> from;
  if (!settings_.pretrained) from = open_whole(comm_, settings_.init.from);
  const Checkpoint* checkpoint = from ? &*from : nullptr;
  const std::vector<StateEntry> base = parallel_->base_state();
  Hash128 mine;
  fail_together(comm_, [&] {
    check_at_rest("parameters are loaded");
    const std::vector<StateEntry> state = parallel_->state();
    if (from) require_vocabulary_of(*from);
    if (trained) read_initial(settings_, checkpoint, state, base);
    if (!base.empty()) mine = read_initial(settings_, checkpoint, base, state);
  });
  if (base.empty()) return;
  if (parallel_->mesh().replica().index != 0) mine = {};  // the same slices as in replica 0
  const auto high = all_gather_values(comm_, std::bit_cast<int64_t>(mine.high), "hash of init.from"),
             low = all_gather_values(comm_, std::bit_cast<int64_t>(mine.low), "hash of init.from");
  Hash128 sum;
  for (size_t r = 0; r < high.size(); ++r) sum += {std::bit_cast<uint64_t>(high[r]), std::bit_cast<uint64_t>(low[r])};
  info_.base = to_hex(sum);
}

// What init.adapter must hold.
std::vector<StateEntry> Trainer::entries_of_adapter() const {
  std::vector<StateEntry> out;
  for (const StateEntry& e : parallel_->state())
    if (is_lora_parameter(e.name) || matches_any(settings_.lora.train, name_in_model(e.name))) out.push_back(e);
  return out;
}

void Trainer::require_tokenizer_of_folder() const {
  const auto ours = parse_vocabulary(info_.vocabulary);
  if (!settings_.pretrained || settings_.init.other_tokenizer || !ours) return;
  const std::string& folder = settings_.pretrained->folder;
  const std::string difference = tokenizer_difference(folder, *ours);
  require(difference.empty(), ExitCode::kBadData, folder, ": its tokenizer is not that of the data: ", difference,
          "; import the data with --tokenizer ", folder,
          ", or set init.other_tokenizer: true to learn anew what each token means");
}

void Trainer::load_initial() {
  fail_together(comm_, [&] { require_tokenizer_of_folder(); });
  read_init(true);
  fail_together(comm_, [&] {
    if (settings_.adapter) load_weights(*settings_.adapter, entries_of_adapter());
    parameters_were_loaded();
  });
}

void Trainer::load_base_of(const Checkpoint& c) {
  if (c.info.base.empty() && parallel_->base_state().empty()) return;
  read_init(false);
  require_base_of(settings_, c, info_.base);
}

void Trainer::require_vocabulary_of(const Checkpoint& c) const {
  const auto theirs = parse_vocabulary(c.info.vocabulary), ours = parse_vocabulary(info_.vocabulary);
  if (theirs && ours)  // a token must mean what the parameters learnt
    if (const std::string difference = first_difference(*theirs, *ours); !difference.empty())
      throw Error(ExitCode::kBadData,
                  cat(c.dir, ": was trained with another vocabulary than the data's: ", difference,
                      "; import the text with `lockstep data import text ... --vocabulary ", c.dir, "`"));
}

void Trainer::load_parameters(const Checkpoint& c, bool averages) {
  check_at_rest("parameters are loaded");
  require_vocabulary_of(c);
  load_entries(c, parallel_->state());
  if (averages) load_entries(c, averages_of(c, parallel_->state()));
  load_base_of(c);
  parameters_were_loaded();
}

void Trainer::parameters_were_loaded() {
  parallel_->state_was_loaded();
  phases_->restart_averages();
  recorded_.reset();  // it has the copies that an update writes, and no others
}

void Trainer::require_weights_of_folder() const {
  require_tokenizer_of_folder();
  std::vector<StateEntry> all = parallel_->state();
  for (StateEntry& e : parallel_->base_state()) all.push_back(std::move(e));
  require_weights_for(*settings_.pretrained, WeightFiles::open(settings_.pretrained->folder),
                      held_by_init(settings_, all));
  if (settings_.adapter)
    require_weights_for(*settings_.adapter, WeightFiles::open(settings_.adapter->folder), entries_of_adapter());
}

std::vector<ConfigDifference> Trainer::require_resumable(const Checkpoint& c) const {
  require(c.info.dataset == info_.dataset, ExitCode::kBadData, c.dir, ": was trained on other data: its dataset is ",
          c.info.dataset, ", this one is ", info_.dataset, "; to train its parameters on other data, use init.from");
  auto differences = diff(resolved_math_text(c.info), info_.math_text);
  // An end of 0 was never resolved: train.steps was 0, and no step was made under it.
  std::erase_if(differences, [](const auto& d) { return d.key == "schedule.steps" && d.a == "0"; });
  // Masters are fp32 in every precision: a run may go on in another one. Other keys need the user's consent.
  const auto& allow = settings_.resume.allow;
  const auto tolerated = std::stable_partition(differences.begin(), differences.end(), [&](const auto& d) {
    return (!d.key.starts_with("precision.") || d.key == "precision.frozen") &&
           std::find(allow.begin(), allow.end(), d.key) == allow.end();
  });
  for (auto d = tolerated; d != differences.end(); ++d)
    if (comm_.rank() == 0)
      log_warning(cat("resuming with ", d->key, ": ", d->b, " what was trained with ", d->a,
                      ": it goes on, but not with the bits of the uninterrupted run"));
  if (const auto others = static_cast<size_t>(tolerated - differences.begin()); others > 0) {
    std::string text, keys;
    for (size_t i = 0; i < others; ++i) {
      if (i < 5)
        text += cat(i ? "; " : "", differences[i].key, " was ", differences[i].a, " and is ", differences[i].b);
      keys += cat(i ? ", " : "", differences[i].key);
    }
    throw Error(ExitCode::kConfig, cat(c.dir, ": cannot be resumed with another configuration: ", text,
                                       ". Set them back, go on with the new values by 'resume.allow=[", keys,
                                       "]', or start a new run with init.from"));
  }
  const int64_t rows = train_integer_in(c.info.config, "loss_rows");
  if (comm_.rank() == 0 && rows != settings_.train.loss_rows && current_device().type == DeviceType::kCuda)
    log_warning(cat("resuming with train.loss_rows: ", settings_.train.loss_rows, " what was trained with ", rows,
                    ": on a GPU, whose library may sum products of other extents in another order, it goes on, but "
                    "perhaps not with the bits of the uninterrupted run"));
  if (comm_.rank() == 0 && std::string(bits_of_isa(c.info.isa.c_str())) != bits_of_isa(info_.isa.c_str()))
    log_warning(cat("resuming a run computed with ", c.info.isa, " on a machine that uses ", info_.isa,
                    ": it goes on, but its bits will differ from the uninterrupted run's"));
  return differences;
}

void Trainer::resume(const Checkpoint& c) {
  trace_mark();
  check_at_rest("a checkpoint is resumed");
  std::vector<ConfigDifference> differences;
  fail_together(comm_, [&] {
    differences = require_resumable(c);
    load_entries(c, state());
  });
  load_base_of(c);
  parallel_->state_was_loaded();
  const CheckpointInfo here = info_;
  info_ = c.info;
  info_.config = here.config;
  const bool same_precision = std::none_of(differences.begin(), differences.end(),
                                           [](const auto& d) { return d.key.starts_with("precision."); });
  info_.math_text = same_precision || !settings_.resume.allow.empty() ? here.math_text : resolved_math_text(c.info);
  info_.data_schema = here.data_schema;  // older checkpoints have none
  info_.isa = here.isa;
  info_.writer = here.writer;
  info_.ranks = here.ranks;
  info_.layout = here.layout;
  std::vector<int64_t> updates{info_.updates};
  updates.insert(updates.end(), info_.later_updates.begin(), info_.later_updates.end());
  require(updates.size() == phases_->count(), ExitCode::kBadData, c.dir, ": its steps had ",
          static_cast<int64_t>(updates.size()), " phases, those of ", settings_.model_name, " have ",
          static_cast<int64_t>(phases_->count()));
  phases_->set_updates(updates);
  const bool was_fp16 =
      std::none_of(differences.begin(), differences.end(), [](auto& d) { return d.key == "precision.compute"; });
  if (was_fp16) loss_scale_.restore(info_.loss_scale, info_.good_steps);
  recorded_.reset();
  loader_.reset();
  start_loader();
}

}  // namespace lockstep
