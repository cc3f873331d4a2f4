#include "launch/proof/prover.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/base/log.h"
#include "launch/checkpoints/saver.h"
#include "launch/config/run_length.h"
#include "launch/training/guards/memory_advice.h"
#include "launch/training/weights/build_model.h"
#include "launch/world/fail_together.h"

namespace lockstep {

void require_steps(const Settings& s, int64_t steps) {
  require(steps <= s.train.steps, ExitCode::kUsage, "--steps ", steps, ": are more than ",
          s.config.place("train.steps"), ": ", length_text(s));
}

Prover::Prover(const ProofPlan& plan, Communicator& world, const Datasets& data, std::unique_ptr<Communicator>& group)
    : plan_(plan), world_(world), proof_(world, data, group) {
  fail_together(world, [&] {
    for (const auto& layout : plan.layouts) {
      resolve_steps(*layout->settings, *data.train);
      require_steps(*layout->settings, plan.steps);
    }
    for (const ProofRow& row : plan.rows) {
      const Settings& s = *row.layout->settings;
      if (s.recompute != Recompute::kNone &&
          apply_recompute(*s.model->build(task_of(data.train->spec())), s.recompute) == 0)
        continue;  // the model does not support this
      rows_.push_back(row);
    }
  });
  if (world.rank() != 0) return;
  ProgressOptions o;
  o.title = "prove";
  o.total = plan.steps * static_cast<int64_t>(rows_.size());
  progress_ = std::make_unique<Progress>(o);
  proof_.after_step = [this] {
    if (progress_) progress_->set(++done_, running_);
  };
}

int64_t Prover::go() {
  std::vector<ProofRow>& rows = rows_;
  const bool saves = std::any_of(rows.begin(), rows.end(), [](const ProofRow& row) { return row.saved_by != nullptr; });
  if (plan_.fast || saves) temp_dir_.emplace(world_);
  for (size_t i = 0; i < rows.size(); ++i) {
    Proof::AtEnd at_end;
    std::pair<double, std::string> far;
    if (plan_.fast && i == 0) at_end = [&](Trainer& t, Communicator& comm) { save(t, comm, "exact"); };
    if (plan_.fast && i > 0)
      at_end = [&](Trainer& t, Communicator& comm) {
        far = largest_relative_difference(t, comm, saved("exact", plan_.steps));
      };
    ProofRecord record = train(rows[i], plan_.steps, at_end);
    rows[i].record = std::move(record);
    rows[i].far = far;
  }
  if (progress_) progress_->finish();
  progress_.reset();
  int64_t differ = 0;
  size_t worst = 0;
  std::optional<ProofDifference> where;
  if (world_.rank() == 0)
    for (size_t i = 1; i < rows.size(); ++i) {
      if (plan_.fast) {
        differ += !std::isfinite(rows[i].far.first);
        continue;
      }
      const auto d = first_difference(rows[0].record, rows[i].record);
      if (!d) continue;
      ++differ;
      rows[i].difference = d->text;
      if (!where && !d->tensor.empty()) where = d, worst = i;
    }
  // All ranks train the two runs again, up to that step.
  const std::string agreed = broadcast_text(
      world_, where ? str(worst, " ", where->step, " ", where->tensor) : std::string(), 0, "where runs differ");
  if (!agreed.empty()) name_element(agreed);
  return differ;
}

Checkpoint Prover::saved(const std::string& folder, int64_t step) const {
  return open_checkpoint(*temp_dir_ / str(folder, "/", checkpoint_name(step)));
}

void Prover::save(const Trainer& trainer, Communicator& comm, const std::string& folder) const {
  Saver saver(comm, *temp_dir_ / folder, {});
  saver.start(trainer.info(), trainer.entries_to_save());
  saver.finish();
}

ProofRecord Prover::train(const ProofRow& row, int64_t last, const Proof::AtEnd& at_end) {
  running_ = row.name();
  if (!row.saved_by) return train(*row.layout, {"", 0, last}, at_end);
  const ProofRecord before =
      train(*row.saved_by, {"", 0, plan_.half}, [&](Trainer& t, Communicator& comm) { save(t, comm, "half"); });
  ProofRecord record =
      train(*row.layout, {*temp_dir_ / str("half/", checkpoint_name(plan_.half)), plan_.half, last}, at_end);
  record.seconds += before.seconds;
  return record;
}

ProofRecord Prover::train(const RankLayout& layout, const Proof::Span& span, const Proof::AtEnd& at_end) {
  return with_memory_advice(*layout.settings, layout.ranks,
                            [&] { return proof_.train(*layout.settings, layout.ranks, span, at_end); });
}

void Prover::name_element(const std::string& where) {
  std::istringstream in(where);
  size_t worst = 0;
  int64_t step = 0;
  std::string tensor;
  in >> worst >> step >> std::ws;
  std::getline(in, tensor);
  ProofRow &first = rows_[0], &other = rows_[worst];
  if (!temp_dir_) temp_dir_.emplace(world_);
  if (world_.rank() == 0)
    log_info(str("training two of them again, up to step ", step, ", to find the first element that differs"));
  std::optional<ProofElement> element;
  const ProofRecord a = train(first, step, [&](Trainer& t, Communicator& comm) { save(t, comm, "first"); });
  const ProofRecord b = train(other, step, [&](Trainer& t, Communicator& comm) {
    element = first_element(t, comm, saved("first", step), tensor);
  });
  if (world_.rank() != 0) return;
  auto repeats = [&](const ProofRecord& again, const ProofRecord& before) {
    return again.tensors.back() == before.tensors[static_cast<size_t>(step - before.first)];
  };
  std::string& text = other.difference;
  if (element)
    text += str("; ", element_text(*element), ": ", bits_text(element->a), " with ", first.name(), ", ",
                bits_text(element->b), " here");
  for (auto& [row, again] : {std::pair{&first, &a}, std::pair{&other, &b}})
    if (!repeats(*again, row->record))
      text += str("; ", row->name(), " does not even repeat itself: trained again, it gave other values");
}

}  // namespace lockstep
