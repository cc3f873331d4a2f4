// StepReducer: combines losses, target counts and gradient norms across ranks in a fixed order, on the device; the host
// may read the result later. Each rank contributes its micro-batches' losses and counts and the sums of squares of its
// part of the gradients. Owned by DataParallel, one for each number of micro-batches; borrows buckets and mesh.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/partition.h"
#include "sharding/gradient_bucket.h"
#include "sharding/mesh.h"

namespace lockstep {

// What a rank asks of all ranks with a step: one of them suffices, and all learn of it with the step's outcome, so that
// they do it after the same step without an exchange of its own.
struct StepRequests {
  bool stop = false;   // end the run
  bool save = false;   // save a checkpoint
  bool trace = false;  // write a timeline of the next steps
  double busy_ms =
      0;  // no request: this rank's time for the step before, less its waiting for others, for StepResult::busy_ms
};

// What the host of a rank brings to a step.
struct StepInputs {
  int64_t micro_count = 0;      // micro-batches of all ranks
  std::vector<double> targets;  // counted in each of this rank's micro-batches, in the order of their backward passes;
                                // of samples with weights the sum of these
  StepRequests requests;        // of this rank
};

// The outcome of a step, the same on every rank.
struct StepResult {
  double loss = 0;        // mean over the step's targets
  double grad_norm = 0;   // of the mean gradient, before clipping
  double targets = 0;     // that counted; of samples with weights the sum of these
  bool finite = true;     // else the optimizer must skip this step
  std::string nonfinite;  // the first parameter whose gradient is not finite, or "loss"
  // What the optimizer multiplies gradients with: nominal targets / counted ones / loss scale, and what clips the norm.
  double grad_scale = 1;
  double exposed_ms = 0;        // time that the host spent waiting for communication, in all of the step
  StepRequests requests;        // of all ranks
  std::vector<double> busy_ms;  // that each rank brought; of several ranks
};

// A step whose outcome the device has, or will have, and the host not yet. A value; outlives what made it.
class PendingStep {
 public:
  // fp32 [2] on this rank's device: StepResult's grad_scale, and 1 where the optimizer must skip (Optimizer::update).
  const Tensor& verdict() const { return verdict_; }
  // Blocks the host until the device has it. Throws ExitCode::kRankLost when `deadline` passes first.
  StepResult wait(std::optional<Seconds> deadline = {}) const;

  // The same step of another launch of the graph that holds it.
  PendingStep relaunched() const;
  void set_exposed(double ms) { exposed_ms_ = ms; }

 private:
  friend class StepReducer;
  void bring_to_host();

  Tensor verdict_;                                       // fp32 [2], as verdict() says
  Tensor outcome_, on_host_;                             // fp64: StepOutcomeArgs::out
  Tensor gathered_, gathered_on_host_;                   // of several ranks: what all brought
  std::shared_ptr<const std::vector<int32_t>> busy_at_;  // there, by rank
  Event there_;
  std::shared_ptr<const std::vector<std::string>> names_;  // of tensors
  double exposed_ms_ = 0;
};

class StepReducer {
 public:
  using Buckets = std::vector<std::unique_ptr<GradientBucket>>;
  // For steps of `micro_count` micro-batches, dealt by `schedule`.
  StepReducer(const Buckets& buckets, const Mesh& mesh, MicroSchedule schedule, int64_t micro_count);

  // Brings them to the device, always to the same place.
  void set_inputs(const StepInputs& inputs);
  // Gradients are sums / nominal * loss_scale; 0: no clipping.
  struct Scales {
    double nominal = 1, loss_scale = 1, clip_norm = 0;
  };
  // Gathers and adds up, in the order of the stream; `losses`: summed, of this rank's micro-batches. After
  // set_inputs(). Collective.
  PendingStep run(const std::vector<Tensor>& losses, const Scales& scales);

 private:
  struct Places;
  struct NormPlan {
    std::string name;            // of a tensor
    std::vector<int32_t> nodes;  // pairs: place, subtrees completed
  };
  Places places_of(MicroSchedule schedule);  // fills counts_, too
  std::vector<NormPlan> norms_of(const Places& places) const;

  const Buckets& buckets_;
  const Mesh& mesh_;
  int64_t micro_count_;
  std::vector<int64_t> counts_;  // of each rank's values: requests, loss and targets of each micro-batch, norm nodes
  Tensor plan_;                  // int32: StepOutcomeArgs::losses, requests, first, nodes
  std::shared_ptr<const std::vector<std::string>> names_;  // of tensors, sorted: their order of addition
  std::shared_ptr<const std::vector<int32_t>> busy_at_;    // where each rank's time is among all values
  Tensor known_;  // fp64: requests, loss and targets of each micro-batch, as far as the host has them
};

}  // namespace lockstep
