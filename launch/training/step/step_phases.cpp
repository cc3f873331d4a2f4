#include "launch/training/step/step_phases.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

StepPhases::StepPhases(const std::vector<StepPhase>& phases, const Settings& settings, DataParallel& parallel)
    : parallel_(parallel) {
  const std::vector<Slot>& slots = parallel.slots();
  std::vector<int> taken(slots.size());
  for (const StepPhase& phase : phases) {
    Phase& made = phases_.emplace_back();
    made.module = phase.module;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (!phase.module.empty() && !is_of_module(slots[i].name, phase.module)) continue;
      check(taken[i]++ == 0, "two phases of a step update parameter ", slots[i].name);
      made.slots.push_back(i);
    }
    require(!made.slots.empty(), ExitCode::kConfig, settings.config.place("optim.rules"), ": no parameter of ",
            phase.module, " is trained, but each step has a phase that updates them");
    made.optimizer = settings.optimizer->build(settings.optim, slots_of(made));
    if (settings.optim.ema > 0) made.average = std::make_unique<WeightAverage>(slots_of(made), settings.optim.ema);
  }
  for (size_t i = 0; i < slots.size(); ++i) check(taken[i] > 0, "no phase of a step updates parameter ", slots[i].name);
}

std::vector<Slot> StepPhases::slots_of(const Phase& phase) const {
  std::vector<Slot> out;
  for (size_t i : phase.slots) out.push_back(parallel_.slots()[i]);
  return out;
}

void StepPhases::prepare(double lr) {
  for (Phase& p : phases_) {
    p.optimizer->prepare(lr);
    if (p.average) p.average->prepare(lr);
  }
}

void StepPhases::update(size_t phase, const Tensor& verdict) {
  const Phase& p = phases_[phase];
  const std::vector<Slot> slots = slots_of(p);
  p.optimizer->update(slots, verdict);
  if (p.average) p.average->update(slots, verdict);
}

void StepPhases::settle(size_t phase, bool skipped) {
  phases_[phase].optimizer->settle(skipped);
  if (phases_[phase].average) phases_[phase].average->settle(skipped);
}

void StepPhases::set_copies(CopiesBeside* copies) {
  for (Phase& p : phases_) {
    p.optimizer->set_copies(copies);
    if (p.average) p.average->set_copies(copies);
  }
}

void StepPhases::set_observer(UpdateObserver* observer) {
  for (Phase& p : phases_) {
    p.optimizer->set_observer(observer);
    if (p.average) p.average->set_observer(observer);
  }
}

std::vector<int64_t> StepPhases::updates() const {
  std::vector<int64_t> out;
  for (const Phase& p : phases_) out.push_back(p.optimizer->updates());
  return out;
}

void StepPhases::set_updates(const std::vector<int64_t>& updates) {
  for (size_t i = 0; i < phases_.size(); ++i) {
    phases_[i].optimizer->set_updates(updates[i]);
    if (phases_[i].average) phases_[i].average->set_updates(updates[i]);
  }
}

std::vector<StateEntry> StepPhases::state() const {
  std::vector<StateEntry> out;
  const auto append = [&](const Optimizer* one, const std::vector<Slot>& slots) {
    if (!one) return;
    for (StateEntry& e : one->state(slots)) out.push_back(std::move(e));
  };
  for (const Phase& p : phases_) append(p.optimizer.get(), slots_of(p));
  for (const Phase& p : phases_) append(p.average.get(), slots_of(p));
  return out;
}

void StepPhases::restart_averages() {
  for (Phase& p : phases_)
    if (p.average) p.average->restart(slots_of(p));
}

void StepPhases::swap_averages() {
  for (Phase& p : phases_)
    if (p.average) p.average->swap(slots_of(p));
}

StepResult joined(const PhaseResults& phases) {
  StepResult all = phases.back().second;
  all.loss = all.exposed_ms = 0;
  double squares = 0;
  for (const auto& [name, one] : phases) {
    all.loss += one.loss;
    squares += one.grad_norm * one.grad_norm;
    all.exposed_ms += one.exposed_ms;
  }
  all.grad_norm = std::sqrt(squares);
  const auto bad = std::find_if(phases.begin(), phases.end(), [](const auto& p) { return !p.second.finite; });
  all.finite = bad == phases.end();
  if (!all.finite) all.nonfinite = str(bad->second.nonfinite, " in the phase of ", bad->first);
  return all;
}

}  // namespace lockstep
