// The part of Trainer that reads state: parameters, and all that a run goes on from.
#include <algorithm>

#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/kernels/kernels.h"
#include "launch/config/resumed_config.h"
#include "launch/training/step/trainer.h"
#include "launch/world/fail_together.h"

namespace lockstep {

void Trainer::load_initial() {
  check_at_rest("parameters are loaded");
  placed_.load_initial();
  parameters_were_loaded();
}

void Trainer::load_parameters(const Checkpoint& c, bool averages) {
  check_at_rest("parameters are loaded");
  placed_.load_parameters(c, averages);
  parameters_were_loaded();
}

// A recorded step has the copies that an update writes, and no others.
void Trainer::parameters_were_loaded() {
  phases_->restart_averages();
  recorded_.reset();
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
      log_warning(str("resuming with ", d->key, ": ", d->b, " what was trained with ", d->a,
                      ": it goes on, but not with the bits of the uninterrupted run"));
  if (const auto others = static_cast<size_t>(tolerated - differences.begin()); others > 0) {
    std::string text, keys;
    for (size_t i = 0; i < others; ++i) {
      if (i < 5)
        text += str(i ? "; " : "", differences[i].key, " was ", differences[i].a, " and is ", differences[i].b);
      keys += str(i ? ", " : "", differences[i].key);
    }
    throw Error(ExitCode::kConfig, str(c.dir, ": cannot be resumed with another configuration: ", text,
                                       ". Set them back, go on with the new values by 'resume.allow=[", keys,
                                       "]', or start a new run with init.from"));
  }
  const bool named = !c.info.base.empty(), names = !parallel_.base_state().empty();
  require(named == names, ExitCode::kConfig, c.dir, named ? ": holds only a hash of" : ": holds",
          " its frozen parameters, but with the current lora, precision.frozen and optim.rules checkpoints hold ",
          names ? "only a hash of them" : "the parameters", ": set these keys back, or start a new run with init.from");
  const int64_t rows = train_integer_in(c.info.config, "loss_rows");
  if (comm_.rank() == 0 && rows != settings_.train.loss_rows && current_device().type == DeviceType::kCuda)
    log_warning(str("resuming with train.loss_rows: ", settings_.train.loss_rows, " what was trained with ", rows,
                    ": on a GPU, whose library may sum products of other extents in another order, it goes on, but "
                    "perhaps not with the bits of the uninterrupted run"));
  const std::string &before = c.info.validation.texts, &now = task_scores_->texts();
  if (comm_.rank() == 0 && before != now && !settings_.train.eval_tasks.empty() && scores_tasks(c.info.config))
    log_warning(str("train.eval_tasks: scores before were of texts encoded as ", before.empty() ? "TEXT" : before,
                    ", those from now on are of ", now.empty() ? "TEXT" : now,
                    before.empty() ? ", as lm-evaluation-harness encodes them by default" : "",
                    ": the two are not to be compared, and a best one by them (train.best.metric) is sought anew; "
                    "train.eval_special_tokens=",
                    now.empty() ? "true" : "false", " encodes them as before"));
  if (comm_.rank() == 0 && std::string(bits_of_isa(c.info.isa.c_str())) != bits_of_isa(info_.isa.c_str()))
    log_warning(str("resuming a run computed with ", c.info.isa, " on a machine that uses ", info_.isa,
                    ": it goes on, but its bits will differ from the uninterrupted run's"));
  return differences;
}

void Trainer::resume(const Checkpoint& c) {
  trace_mark();
  check_at_rest("a checkpoint is resumed");
  std::vector<ConfigDifference> differences;
  fail_together(comm_, [&] { differences = require_resumable(c); });
  if (reference_.is_missing(task_)) {
    loader_.reset();
    reference_.compute_for(c, placed_, settings_, comm_);
  }
  fail_together(comm_, [&] { load_entries(c, state()); });
  placed_.load_base_of(c);
  parallel_.state_was_loaded();
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
  const bool precision_unchanged =
      std::none_of(differences.begin(), differences.end(), [](auto& d) { return d.key == "precision.compute"; });
  if (precision_unchanged) loss_scale_.restore(info_.loss_scale, info_.good_steps);
  recorded_.reset();
  loader_.reset();
  start_loader();
}

}  // namespace lockstep
