// The outcome of a step (loss, norm, skip flag) and an update's control buffer: arithmetic shared by CPU levels and
// CUDA. Plain functions.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/math.h"

namespace lockstep::inline LOCKSTEP_ISA {

HD inline bool is_finite(double x) { return x - x == 0; }

// The sum of squares of a tensor's gradient: its nodes in order, siblings added as soon as both are there.
HD inline double tensor_sum(const StepOutcomeArgs& a, int64_t tensor) {
  double open[StepOutcomeArgs::kMostOpen];
  int count = 0;
  for (int64_t i = a.first[tensor]; i < a.first[tensor + 1]; ++i) {
    open[count++] = a.values[a.nodes[2 * i]];
    for (int32_t join = a.nodes[2 * i + 1]; join > 0; --join) {
      --count;
      open[count - 1] += open[count];
    }
  }
  return count > 0 ? open[0] : 0;
}

struct StepSums {
  double loss = 0, targets = 0, norm_squared = 0;
  int requests = 0;         // bits, joined
  int64_t bad_tensor = -1;  // the first that is not finite

  HD void add_micro_batch(double its_loss, double its_targets) { loss += its_loss, targets += its_targets; }
  HD void add_tensor(int64_t tensor, double sum) {
    norm_squared += sum;
    if (bad_tensor < 0 && !is_finite(sum)) bad_tensor = tensor;
  }
};

HD inline void conclude(const StepOutcomeArgs& a, const StepSums& sums) {
  using A = StepOutcomeArgs;
  const bool any = sums.targets > 0;
  const double correction = any ? a.nominal / sums.targets : 0;
  const double loss = any ? sums.loss / sums.targets : 0;
  const double norm = sqrt_of(sums.norm_squared) * correction / a.loss_scale;
  int64_t problem = 0;
  if (sums.bad_tensor >= 0) problem = A::kFirstTensor + sums.bad_tensor;
  else if (!is_finite(loss)) problem = A::kLossProblem;
  else if (!is_finite(norm)) problem = A::kNormProblem;
  double scale = correction / a.loss_scale;
  if (a.clip_norm > 0 && norm > a.clip_norm) scale *= a.clip_norm / norm;
  a.out[A::kLoss] = loss;
  a.out[A::kGradNorm] = norm;
  a.out[A::kTargets] = sums.targets;
  a.out[A::kProblem] = static_cast<double>(problem);
  a.out[A::kGradScale] = scale;
  a.out[A::kRequests] = sums.requests;
  a.verdict[UpdateControlArgs::kGradScale] = static_cast<float>(scale);
  a.verdict[UpdateControlArgs::kSkip] = problem != 0 ? 1.0f : 0.0f;
}

// FoldArgs.
HD inline float folded(float value, float update, float rate) {
  return update == update ? value + rate * (update - value) : value;
}

HD inline void write_control(const UpdateControlArgs& a) {
  using A = UpdateControlArgs;
  const bool one_more = a.numbers[A::kUnsettled] != 0 && a.control[UpdateControl::kSkip] == 0;
  const float* corrections = a.numbers + A::kCorrections + (one_more ? 2 : 0);
  a.control[UpdateControl::kLr] = a.numbers[A::kLr];
  a.control[UpdateControl::kGradScale] = a.verdict[A::kGradScale];
  a.control[UpdateControl::kSkip] = a.verdict[A::kSkip];
  a.control[UpdateControl::kCorrection1] = corrections[0];
  a.control[UpdateControl::kCorrection2] = corrections[1];
}

}  // namespace lockstep::inline LOCKSTEP_ISA
