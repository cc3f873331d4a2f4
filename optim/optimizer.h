// Optimizer: one fused pass over each slot's fp32 master; moments per slot. The kinds there are: optim/builtin.h.
// Owned by the trainer or a loop of one's own; owns the moments.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/choice.h"
#include "core/io/state.h"
#include "core/nn/slot.h"

namespace lockstep {

// Overrides for parameters whose name matches; later rules win.
struct OptimRule {
  std::string pattern;            // with * for any characters: "*.bias", "blocks.0.*"
  std::string decay = "default";  // on | off | default
  double lr_scale = 1;
  bool frozen = false;
};
std::vector<Field> fields(OptimRule& o);

struct OptimOptions {
  std::string name = "adamw";  // optim.name, a choice
  double lr = 1e-3;
  double weight_decay = 0;
  bool decay_vectors = false;  // norms and biases too
  double clip_norm = 0;
  int64_t skip_limit = 10;
  std::vector<OptimRule> rules;
};
std::vector<Field> fields(OptimOptions& o);  // beside the name

bool matches(const std::string& pattern, const std::string& name);
// Applies decay defaults and rules. Throws ExitCode::kConfig for a rule that matches none of `slots` and is not for a
// frozen parameter.
void apply_rules(const OptimOptions& o, std::vector<Slot>& slots, const std::vector<std::string>& all_names);
bool is_frozen(const OptimOptions& o, const std::string& name);

struct PointwiseArgs;  // core/kernels/args.h

struct UpdateScalars {
  double lr = 0;
  double grad_scale = 1;
  bool skip = false;  // leave everything as it is
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Slots are those of construction, in the same order, with this step's gradients.
  void step(const std::vector<Slot>& slots, const UpdateScalars& s);

  // The same in three parts, where the host does not wait for what the device finds out about the gradients.
  // First the host's numbers set out; at most one update may be unsettled then.
  void prepare(double lr);
  // Then the update; `verdict` (DataParallel::PendingStep) says what gradients are multiplied with, and whether to
  // skip. A graph may hold this part.
  void update(const std::vector<Slot>& slots, const Tensor& verdict);
  // Once the host knows the verdict, in the order of the updates.
  void settle(bool skipped);

  // Updates done, of those that are settled; skipped steps do not count.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }
  // Moments by logical name.
  std::vector<StateEntry> state(const std::vector<Slot>& slots) const;
  virtual std::vector<std::string> moment_names() const = 0;

 protected:
  explicit Optimizer(const std::vector<Slot>& slots, int moments);
  virtual void update_slot(const Slot& slot, const std::vector<Tensor>& moments, const float* control) = 0;

 private:
  void update_by_chunk(const Slot& slot, const std::vector<Tensor>& moments, const float* control);
  virtual void corrections(int64_t update, double& first, double& second) const = 0;
  std::vector<std::vector<Tensor>> moments_;  // [slot][moment], fp32, shaped as the slot
  Tensor numbers_, control_, verdict_;        // as kernels read them (UpdateControlArgs); the last is for step()
  std::vector<Tensor> staging_;               // master and moments of a chunk, for slots in host memory
  int64_t updates_ = 0;
  int unsettled_ = 0;
};

// A kind of optimizer, with its own options (optim.beta1, ...).
class OptimizerKind : public Configurable {
 public:
  virtual std::unique_ptr<Optimizer> build(const OptimOptions& common, const std::vector<Slot>& slots) const = 0;
};

// Those of optim/optimizers: each NAME.cpp defines `Choice<OptimizerKind> NAME_choice()`. adamw is the first.
std::vector<Choice<OptimizerKind>> builtin_optimizers();

// Options of optimizers have these ranges. What is beyond kMostRate can only be a mistake, and overflows fp32 within a
// few steps; kMostBeta is the largest factor of a moment that is still below 1 in fp32.
constexpr double kMostRate = 1e4, kMostBeta = 0.9999999;

// For update_slot(): the arguments of an update that writes `outs` from `ins`, and the slot's copy with the master
// where it has one.
PointwiseArgs update_args(const Slot& slot, std::initializer_list<Tensor> outs, std::initializer_list<Tensor> ins);

}  // namespace lockstep
