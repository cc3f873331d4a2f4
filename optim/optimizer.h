// Optimizer: updates the fp32 master of each slot in one fused pass, with moments per slot. The built-in kinds are in
// optim/builtin.h. Owned by the trainer or a custom training loop; owns the moments.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/choice.h"
#include "core/kernels/pointwise.h"
#include "core/kernels/update_control.h"
#include "core/nn/slot.h"
#include "core/state/state.h"

namespace lockstep {

class CopiesBeside;  // optim/copies_beside.h

// What a rule says of one option; a rule that does not set it leaves it to the rules before.
template <class T>
struct RuleValue {
  RuleValue(T v) : value(v), given(true) {}  // NOLINT: a value is one that is given
  static RuleValue standard(T v) {
    RuleValue out(v);
    out.given = false;
    return out;
  }
  T value;  // the option's default where it is not given
  bool given;
};

// Overrides options for the parameters whose name matches. Of several rules that match, each option is that of the last
// one that sets it.
struct OptimRule {
  std::string pattern;            // * matches any characters: "*.bias", "blocks.0.*"
  std::string decay = "default";  // on | off; default does not set it
  RuleValue<double> lr_scale = RuleValue<double>::standard(1);
  RuleValue<bool> frozen = RuleValue<bool>::standard(false);
};
std::vector<Field> fields(OptimRule& o);

struct OptimOptions {
  std::string name = "adamw";  // optim.name, a choice
  double lr = 1e-3;
  double weight_decay = 0;
  bool decay_vectors = false;  // weight decay also for norms and biases
  double clip_norm = 0;
  int64_t skip_limit = 10;
  double ema = 0;  // decay of the average of the parameters (WeightAverage); 0: none is kept
  std::vector<OptimRule> rules;
};
std::vector<Field> fields(OptimOptions& o);  // all except `name`

// Sets weight decay and learning-rate scale of each slot from the defaults and rules. Throws ExitCode::kConfig for a
// rule that matches none of `slots`, unless it matches a frozen parameter among `all_names`.
void apply_rules(const OptimOptions& o, std::vector<Slot>& slots, const std::vector<std::string>& all_names);
bool is_frozen(const OptimOptions& o, const std::string& name);
// Whether one of these parameters gets a rate or is frozen by a rule that a later rule matches, too, and leaves alone.
// Until 2026-11 the later rule set both back to their defaults.
bool rules_leave_others(const OptimOptions& o, const std::vector<std::string>& names);

// How an optimizer keeps its moments between updates. k8Bit: 1.06 bytes for each element instead of 4: codes with one
// scale for each 64 elements (core/kernels/codes/block_codes.h). Updates compute in fp32.
enum class Moments { kFloat32, k8Bit };

// Is told, on the host, of each part of the state as an update reads it and as the update has written it, so that a
// value that changes between updates can be found (verify.memory).
class UpdateObserver {
 public:
  // Elements from `begin` on of a master or of a moment. `slice` is where the values of that slice of the state begin.
  struct Part {
    const void* slice;
    int64_t begin;
    StateEntry now;
  };
  virtual ~UpdateObserver() = default;
  virtual void before_update(const std::vector<Part>& parts) = 0;
  virtual void after_update(const std::vector<Part>& parts) = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // The learning rate of the next calls of step(). The built-in optimizers begin with that of their options. Throws
  // ExitCode::kInternal for a rate that is not a finite number of 0 or more.
  void set_lr(double lr);
  double lr() const { return lr_; }
  // Updates all slots: those passed to the constructor, in the same order, with this step's gradients, of which
  // `verdict` is the outcome (DataParallel::finish_step). Throws ExitCode::kInternal where no rate was set.
  void step(const std::vector<Slot>& slots, const StepVerdict& verdict);

  // The same in three parts, for a host that does not wait for the device's verdict on the gradients. First prepare()
  // copies the host's numbers to the device; at most one earlier update may be unsettled then.
  void prepare(double lr);
  // Then update() launches the update; `verdict` (fp32 [2] on this rank's device) holds the factor for the gradients
  // and the skip flag. A CUDA graph may record this part.
  void update(const std::vector<Slot>& slots, const Tensor& verdict);
  // Where not null: what an update writes on the host, at once, is also written there. Outlives the optimizer.
  void set_copies(CopiesBeside* copies) { copies_ = copies; }
  // Where not null: is told of every part of every slot. Outlives the optimizer. Not while a graph records an update.
  void set_observer(UpdateObserver* observer) { observer_ = observer; }
  // Then settle(), once the host knows the verdict, in the order of the updates.
  void settle(bool skipped);

  // The number of settled updates; skipped steps are not counted.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }
  // Moments by logical name.
  std::vector<StateEntry> state(const std::vector<Slot>& slots) const;

 protected:
  // `moments`: the names of a slot's moments, such as "adamw.m": of every slot, or by slot.
  Optimizer(const std::vector<Slot>& slots, const std::vector<std::string>& moments, Moments kept = Moments::kFloat32)
      : Optimizer(
            slots, [&](const Slot&) { return moments; }, kept) {}
  Optimizer(const std::vector<Slot>& slots, const std::function<std::vector<std::string>(const Slot&)>& moments,
            Moments kept = Moments::kFloat32);
  // An optimizer overrides one of these two; `control` is UpdateControl's, on the slots' device. Elementwise: updates a
  // slot or a part of one, by apply() or kernels of its own.
  virtual void update_slot(const Slot& slot, const std::vector<Tensor>& moments, const float* control);
  // Where an element's update depends on its whole parameter: updates slots [first, end), which are all of a group or
  // one whole parameter, between begin_group() and end_group(). By itself update_slot() of each.
  virtual void update_group(const std::vector<Slot>& slots, size_t first, size_t end, const float* control);
  // The control buffer, fp32 [UpdateControl::kCount] on the slots' device, whose address `control` is.
  const Tensor& control() const { return control_; }
  // Tell the observer of all state of slots [first, end).
  void begin_group(const std::vector<Slot>& slots, size_t first, size_t end);
  void end_group(const std::vector<Slot>& slots, size_t first, size_t end);
  // For update_slot(): enqueues the update `op` (core/kernels/update.cpp), with those of the group's other slots where
  // these are whole: on a GPU they are then one launch. `op` outlives the queue.
  void apply(const char* op, const PointwiseArgs& args);
  // For update_group(): an elementwise pass over slot i, with its moments. One call, or where the slot is in host
  // memory or moments are 8 bits, one for each part, with fp32 state on the device; Slot::offset says where a part
  // begins.
  using Pass = std::function<void(const Slot& part, const std::vector<Tensor>& moments)>;
  void run_pass(const std::vector<Slot>& slots, size_t i, const Pass& pass);

 private:
  void apply_batched();
  static void update_and_copy(Parallel& parallel, const char* op, const PointwiseArgs& args, CopiesBeside& copies);
  bool is_by_chunk(const Slot& slot, const std::vector<StateEntry>& moments) const;
  void run_by_chunk(const Slot& slot, const std::vector<StateEntry>& moments, const Pass& pass);
  void update_observed(const Slot& slot, size_t i, const float* control);
  std::vector<StateEntry> state_of(const Slot& slot, size_t i) const;
  std::vector<UpdateObserver::Part> parts_of(const std::vector<Slot>& slots, size_t first, size_t end) const;
  virtual void corrections(int64_t update, double& first, double& second) const = 0;
  std::vector<std::vector<StateEntry>> moments_;  // [slot][moment], shaped as the slot
  Tensor numbers_, control_, verdict_;  // inputs of the kernels (UpdateControlArgs); verdict_ is used by step()
  std::vector<Tensor> staging_;         // device copies of a chunk's moments and master, for slots in host memory
  bool batches_ = false;                // apply() keeps what it gets until the group is whole
  const char* batched_op_ = nullptr;
  std::vector<PointwiseArgs> batched_;
  CopiesBeside* copies_ = nullptr;
  UpdateObserver* observer_ = nullptr;
  int64_t observed_ = 0;                                  // elements of masters, by this update so far
  double lr_ = std::numeric_limits<double>::quiet_NaN();  // none was set
  int64_t updates_ = 0;
  int unsettled_ = 0;
};

// A kind of optimizer, with its own options (optim.beta1, ...).
class OptimizerKind : public Configurable {
 public:
  virtual std::unique_ptr<Optimizer> build(const OptimOptions& common, const std::vector<Slot>& slots) const = 0;
};

// `Options` has `std::vector<Field> fields(Options&)`; `O` is built as O(const Options&, const OptimOptions& common,
// slots).
template <class O, class Options>
Choice<OptimizerKind> optimizer_choice(std::string name) {
  struct Made final : OptimizerKind {
    Options value;
    std::vector<Field> options() override { return fields(value); }
    std::unique_ptr<Optimizer> build(const OptimOptions& common, const std::vector<Slot>& slots) const override {
      return std::make_unique<O>(value, common, slots);
    }
  };
  return choice<OptimizerKind, Made>(std::move(name));
}

// Those of optim/optimizers: each NAME.cpp defines `Choice<OptimizerKind> NAME_choice()`. adamw is the first.
std::vector<Choice<OptimizerKind>> builtin_optimizers();

// Limits of optimizer options. A value above kMostRate can only be a mistake, and overflows fp32 within a few steps;
// kMostBeta is the largest decay of a moment that is below 1 in fp32.
constexpr double kMostRate = 1e4, kMostBeta = 0.9999999;

// For an update that depends on the whole parameter: throws ExitCode::kInternal where the slot's region is but a box of
// it.
void require_whole_region(const Slot& slot, std::string_view update);
// One past the last slot of the group of slots[first].
size_t end_of_group(const std::vector<Slot>& slots, size_t first);
// Elements of that group's flat buffer.
int64_t group_total(const Slot& slot);

// For update_slot(): the kernel arguments of an update that reads `ins` and writes `outs`. If the slot has a copy of
// its master in the compute type, the update writes that too.
PointwiseArgs update_args(const Slot& slot, std::initializer_list<Tensor> outs, std::initializer_list<Tensor> ins);

}  // namespace lockstep
