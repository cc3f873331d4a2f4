// Chaos: injects the faults that the section `chaos` of a configuration asks for, so that a user can rehearse what
// happens after them. The train command has one object for each rank; trainer and saver call it where a fault belongs,
// and are not given one that has nothing to do. Plain values.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/nn/module.h"
#include "core/state/state.h"
#include "launch/config/settings.h"

namespace lockstep {

// Which start of the job this is, from 1: LOCKSTEP_ATTEMPT, which who restarts a job counts up. Throws
// ExitCode::kConfig if that is no number of 1 or more.
int64_t attempt_of_job();

class Chaos {
 public:
  // Keeps the faults of that rank and attempt.
  Chaos(const ChaosOptions& options, int rank, int64_t attempt);
  bool empty() const { return faults_.empty(); }

  // Steps count from 1. Each hook injects faults of the kinds named beside it.
  void before_step(int64_t step) const;    // kill, stop, segv, exit, slow
  void while_loading(int64_t step) const;  // hang
  double loss_gradient(int64_t step,
                       double gradient) const;  // nan: what the pass and backward begin with, otherwise `gradient`
  // Before forward and backward of a micro-batch, `first` of the step. gradient: flips a bit as soon as the gradient of
  // the model's first parameter is complete, of the step's first micro-batch. In every micro-batch from that step on,
  // in those that are computed for other ranks, too: gradients: the same; activations: a bit of what one of the model's
  // blocks gives, by the number of the step; products: of one product's result, by the number of the step.
  void before_pass(int64_t step, bool first, const Module& model) const;
  bool adds_wrongly(int64_t step) const;  // sums: of every sum of gradients from that step on
  static void flip_bit(const Tensor& values);
  void after_update(int64_t step, const std::vector<StateEntry>& parameters) const;  // weight: of this rank's slices
  void at_rest(int64_t step, const std::vector<StateEntry>& parameters) const;  // memory: the same, before the step
  // full: throws ExitCode::kStorage. On the saver's thread.
  void before_write(int64_t step) const;

 private:
  bool due(std::string_view kind, int64_t step) const;
  const ChaosFault* since(std::string_view kind, int64_t step) const;  // the fault that is there from its step on

  std::vector<ChaosFault> faults_;
};

}  // namespace lockstep
