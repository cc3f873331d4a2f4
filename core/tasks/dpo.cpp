// Direct preference optimisation (Rafailov et al., "Direct Preference Optimization", 2023): -log sigmoid(beta D), where
// D is by how much more the model than the reference prefers the chosen answer, in logarithms of whole answers.
#include "core/tasks/pair_task.h"

namespace lockstep {
namespace {

class Dpo : public ReferenceTask {
 public:
  using ReferenceTask::ReferenceTask;

 protected:
  Tensor losses(const Tensor& output, const Batch& batch) const override {
    const OfAnswers logs = reward_logs(output, batch);
    return softplus(affine(sub(logs.chosen, logs.rejected), -beta(), 0));
  }
};

}  // namespace

Choice<TaskKind> dpo_task() { return task_choice<Dpo, PairTaskOptions>("dpo"); }

}  // namespace lockstep
