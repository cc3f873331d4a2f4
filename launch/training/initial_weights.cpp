// The part of Trainer that reads parameters: what init.from names, and those of checkpoints, with the frozen ones that
// these name.
#include <bit>
#include <optional>

#include "core/base/name_pattern.h"
#include "data/vocabulary.h"
#include "launch/artifacts/open_whole.h"
#include "launch/training/build_model.h"
#include "launch/training/trainer.h"
#include "launch/weights/load_weights.h"
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
  if (parallel_->mesh().replica() != 0) mine = {};  // the same slices as in replica 0
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

void Trainer::load_initial() {
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
  std::vector<StateEntry> all = parallel_->state();
  for (StateEntry& e : parallel_->base_state()) all.push_back(std::move(e));
  require_weights_for(*settings_.pretrained, WeightFiles::open(settings_.pretrained->folder),
                      held_by_init(settings_, all));
  if (settings_.adapter)
    require_weights_for(*settings_.adapter, WeightFiles::open(settings_.adapter->folder), entries_of_adapter());
}

}  // namespace lockstep
