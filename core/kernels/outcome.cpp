// What a step comes to, and an update's control buffer, on a CPU.
#include "core/kernels/outcome.h"

#include "core/kernels/parallel.h"

namespace lockstep::inline LOCKSTEP_ISA {

void step_outcome(Parallel&, const StepOutcomeArgs& a) {
  StepSums sums;
  for (int64_t r = 0; r < a.ranks; ++r) sums.requests |= static_cast<int>(a.values[a.requests[r]]);
  for (int64_t i = 0; i < a.micro_batches; ++i) sums.add_micro_batch(a.values[a.losses[i]], a.values[a.losses[i] + 1]);
  for (int64_t p = 0; p < a.tensors; ++p) sums.add_tensor(p, tensor_sum(a, p));
  conclude(a, sums);
}

void update_control(Parallel&, const UpdateControlArgs& a) { write_control(a); }

}  // namespace lockstep::inline LOCKSTEP_ISA
