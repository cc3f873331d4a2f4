// The outcome of a step, what a rank asks of all ranks with it, and PendingStep: an outcome that the device may not
// have yet. Made by StepReducer (sharding/step_reducer.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device/stream.h"
#include "core/nn/slot.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// What a rank asks of all ranks with a step: one of them suffices, and all learn of it with the step's outcome, so that
// they do it after the same step without an exchange of its own.
struct StepRequests {
  bool stop = false;   // end the run
  bool save = false;   // save a checkpoint
  bool trace = false;  // write a timeline of the next steps
  // No request: this rank's time for the step before, less its waiting for others, for StepResult::busy_ms.
  double busy_ms = 0;
};

// What the host of a rank brings to a step.
struct StepInputs {
  int64_t micro_count = 0;      // micro-batches of all ranks
  std::vector<double> targets;  // counted in each of this rank's micro-batches, in the order of their backward passes;
                                // of samples with weights the sum of these
  StepRequests requests;        // of this rank
};

// The outcome of a step, the same on every rank.
struct StepResult : StepVerdict {
  double loss = 0;              // mean over the step's targets
  double grad_norm = 0;         // of the mean gradient, before clipping
  double targets = 0;           // that counted; of samples with weights the sum of these
  std::string nonfinite;        // the first parameter whose gradient is not finite, or "loss"
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

}  // namespace lockstep
