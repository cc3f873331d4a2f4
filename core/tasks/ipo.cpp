// Identity preference optimisation (Azar et al., "A General Theoretical Paradigm to Understand Learning from Human
// Preferences", 2023): (D - 1 / (2 beta))^2, where D is as of DPO, but of means over an answer's tokens, so that long
// answers count no more than short ones (as in the library TRL).
#include "core/tasks/pair_task.h"

namespace lockstep {
namespace {

class Ipo : public ReferenceTask {
 public:
  using ReferenceTask::ReferenceTask;

 protected:
  Tensor losses(const Tensor& output, const Batch& batch) const override {
    const OfAnswers logs = ratios(reward_logs(output, batch), lengths_of(batch));
    const Tensor rest = affine(sub(logs.chosen, logs.rejected), 1, -1 / (2 * beta()));
    return mul(rest, rest);
  }
};

}  // namespace

Choice<TaskKind> ipo_task() { return task_choice<Ipo, PairTaskOptions>("ipo"); }

}  // namespace lockstep
