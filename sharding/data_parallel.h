// DataParallel: one model's replicas, trained as one. It places the parameters in buckets, folds buffers, collects
// gradients during backward, exchanges them in a fixed order, and hands out Slots for an optimizer. Owned by the
// trainer or a loop of one's own; owns buckets and schedules, borrows model and communicators.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/axis.h"
#include "core/base/partition.h"
#include "core/nn/module.h"
#include "core/nn/slot.h"
#include "core/state/state.h"
#include "sharding/gradient_sink.h"
#include "sharding/options.h"
#include "sharding/step_result.h"

namespace lockstep {

// A user of DataParallel needs none of these (sharding/mesh.h, sharding/transfer_log.h, ...).
class GatherSchedule;
class Mesh;
class ModelBuffers;
class ParameterBucket;
class ReduceSchedule;
class StepReducer;
class TransferLog;
struct Transfer;

class DataParallel {
 public:
  // Names the tree, places and initialises this rank's part of the parameters. Collective. Throws ExitCode::kConfig for
  // options that do not fit the number of ranks or the model. `data`: the ranks among which micro-batches are dealt.
  DataParallel(Module& model, const Axis& data, DataParallelOptions options);
  ~DataParallel();

  // A step of micro_count micro-batches in all begins. `nominal_targets` is the constant by which backward divides: the
  // targets of a full, unpadded step. `module`: a child of the root, whose parameters alone take gradients in this
  // step; the others' are zero. Empty: all do.
  void begin_step(int64_t micro_count, int64_t nominal_targets, std::string_view module = {});
  // How micro-batches are dealt at this level, and those that this rank must run, in this order.
  MicroSchedule schedule() const;
  std::vector<int64_t> my_micro_batches() const;
  // What backward begins with in this step: for WithLossGradient around the loss.
  double loss_gradient() const { return loss_scale_ / static_cast<double>(nominal_); }
  // Runs backward from the summed loss of micro-batch `index` with `targets` counted targets, or so much as their
  // weights add up to; exchanges what becomes ready meanwhile. `gradient`: what it begins with in place of
  // loss_gradient(), for faults that are injected.
  void backward(int64_t index, const Tensor& loss, double targets, std::optional<double> gradient = {});
  // Completes the exchange. Clips by the global norm where clip_norm > 0. `requests`: of this rank; all learn of
  // them. The optimizer's update comes next. The host need not wait for the outcome.
  PendingStep end_step(double clip_norm = 0, const StepRequests& requests = {});
  StepResult finish_step(double clip_norm = 0, const StepRequests& requests = {}) {
    return end_step(clip_norm, requests).wait();
  }
  // Between steps: forward and backward of a micro-batch that may be another rank's, with what begin_step() would be
  // given; its gradients go to `sink` alone, and buffers are not touched. Every rank has one. Collective.
  void compute_apart(int64_t nominal_targets, std::string_view module, const std::function<Tensor()>& loss,
                     const GradientSink& sink);
  // In this step: the gradients of this rank's micro-batch `index` go to `sink`, too, which lives until it ends.
  void watch(int64_t index, const GradientSink& sink);
  // In this step: keeps the leaves of bucket `index` of sums(), so that its sum can be formed again.
  void keep_leaves(size_t index);
  // How many buckets of sums there are; 0 where ranks do not form the tree's sums (reduce: fast).
  size_t sums() const;
  // After end_step() and before the update, of a bucket whose leaves were kept: this rank's part of the step's sum, and
  // the part of rank `of[me]` formed again from all ranks' leaves, by tensor, as "wte.weight[0:4096]". The second is
  // collective; `of`: by rank.
  void sum_of_part(size_t index, const GradientSink& sink) const;
  void sum_again(size_t index, const std::vector<int>& of, const GradientSink& sink);
  void set_sum_observer(const std::function<void(const Tensor& sum)>& observer);
  // For a step that a GPU's graph holds (core/device/graph.h), from begin_step to end_step and the update: what the
  // host brings to it, before it is recorded and before each launch, in place of end_step's `requests`.
  void set_inputs(const StepInputs& inputs);
  // After a launch: the step that it was. `recorded`: what end_step gave when it was recorded.
  PendingStep relaunched(const PendingStep& recorded);
  // Why no step can be recorded here; empty where it can.
  std::string why_not_recorded() const;
  // Multiplies the loss before backward, so that fp16 gradients do not vanish; a power of two. No result shows it.
  void set_loss_scale(double scale) { loss_scale_ = scale; }

  // A forward pass outside of steps: runs `mine` on the first `ranks_with_data` ranks. Collective: the others take part
  // without data.
  void forward_round(int64_t ranks_with_data, const std::function<void()>& mine);

  // One for each trainable parameter, or this rank's slice of it, with this step's gradient (valid until the next
  // begin_step). Decay and scale of the learning rate may be changed (apply_rules).
  std::vector<Slot>& slots() { return slots_; }
  const std::vector<Slot>& slots() const { return slots_; }
  // This rank's slices of the parameters and buffers by logical name: to load into (then call state_was_loaded()), and
  // to save.
  std::vector<StateEntry> state() const;
  // This rank's slices of frozen parameters that come from files, with options.frozen_of_files, which state() then
  // lacks; in the type in which they are kept.
  std::vector<StateEntry> base_state() const;
  // Copies of whole parameters that every rank holds beside its slices of the state, in the compute type:
  // between end_step and the update those that the step computed with. Nothing where there are none.
  std::vector<StateEntry> whole_copies() const;
  void state_was_loaded();  // collective
  // The next forward pass brings parameters together, as after an update, even if they are: for a graph that begins.
  void require_gather();
  // Those that hold the same slices are mesh().replica().size ranks; each saves its share of them.
  const Mesh& mesh() const { return *mesh_; }

  // When each bucket's parameters and gradients travelled in the last step, in the order in which they started.
  const std::vector<Transfer>& transfers() const;
  double backward_end_s() const { return backward_end_s_; }
  // Number of parameters that got no gradient in the last micro-batch on this rank.
  int unused_in_last_step() const;
  int64_t parameter_count() const;

 private:
  void make_buckets();
  void train_only(std::string_view module);
  void call_on_passes(size_t block, const std::vector<Module*>& modules);
  void announce_round();
  StepReducer& reducer_of(int64_t micro_count);

  Module& model_;
  DataParallelOptions options_;
  int exceptions_;  // under way when this was made
  std::vector<Module*> hooked_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<TransferLog> log_;
  std::vector<std::unique_ptr<ParameterBucket>> trainable_;  // in the order of their reductions: the model's last first
  std::vector<std::unique_ptr<ParameterBucket>> frozen_;
  std::unique_ptr<ReduceSchedule> reductions_;
  std::unique_ptr<GatherSchedule> gathers_;
  std::unique_ptr<ModelBuffers> buffers_;
  std::vector<Slot> slots_;
  std::map<int64_t, std::unique_ptr<StepReducer>> reducers_;  // by micro-batches of a step

  int64_t micro_count_ = 0, nominal_ = 1;
  std::string trained_module_;
  double loss_scale_ = 1;
  std::vector<std::pair<Tensor, double>> losses_;  // of my micro-batches: summed loss, targets
  double backward_end_s_ = 0;
};

}  // namespace lockstep
