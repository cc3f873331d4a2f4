// The part of Trainer that is used between steps: evaluation, and the entries of a checkpoint.
#include <algorithm>
#include <map>

#include "data/streams/subset.h"
#include "launch/training/step/trainer.h"
#include "sharding/mesh.h"

namespace lockstep {

EvalReport Trainer::evaluate() {
  check(has_validation(), "evaluate: there is no validation data");
  check_at_rest("evaluate");
  make_reference();
  if (settings_.train.eval_ema) swap_averages();
  const Dataset& all = *data_.validation;
  const int64_t most = settings_.train.eval_samples;
  std::optional<Subset> some;
  if (most > 0 && most < all.size()) some.emplace(all, most);
  EvalReport report = placed_.evaluate(some ? static_cast<const Dataset&>(*some) : all);
  for (auto& score : task_scores_->measure(task_, parallel_, placed_.eval_options()))
    report.metrics.push_back(std::move(score));
  if (settings_.train.eval_ema) swap_averages();
  return report;
}

void Trainer::swap_averages() {
  phases_->swap_averages();
  parallel_.state_was_loaded();
  recorded_.reset();
}

std::vector<StateEntry> Trainer::state() const {
  trace_mark();
  std::vector<StateEntry> out = parallel_.state();
  for (StateEntry& e : phases_->state()) out.push_back(std::move(e));
  return out;
}

std::vector<StateEntry> Trainer::entries_to_save() const {
  trace_mark();
  check_at_rest("the state is saved");
  const Axis& replica = parallel_.mesh().replica();
  return cut_for_rank(state(), replica.index, replica.size);
}

Trainer::Replicas Trainer::replicas(const std::vector<int>& machine_of) const {
  const Mesh& mesh = parallel_.mesh();
  std::map<int, int> on;  // how many on each machine
  Replicas out;
  out.size = 0;
  const auto machine = [&](int replica) {
    return machine_of[static_cast<size_t>(mesh.rank_of(replica, mesh.shard_of(mesh.data().index)))];
  };
  const int here = machine(mesh.replica().index);
  for (int r = 0; r < mesh.replica().size; ++r) {
    ++on[machine(r)];
    if (machine(r) != here) continue;
    if (r < mesh.replica().index) ++out.index;
    ++out.size;
  }
  out.machines = static_cast<int>(on.size());
  out.machine = static_cast<int>(std::distance(on.begin(), on.find(here)));
  out.even = std::all_of(on.begin(), on.end(), [&](const auto& m) { return m.second == out.size; });
  return out;
}

std::vector<StateEntry> Trainer::entries_of_machine(const std::vector<int>& machine_of) const {
  check_at_rest("the state is written to memory");
  const Replicas r = replicas(machine_of);
  return cut_for_rank(state(), r.index, r.size);
}

}  // namespace lockstep
