// Tokens that are hidden, or a label for each token: labels [B, T] of the same positions.
#include "core/tasks/model_task.h"

namespace lockstep {
namespace {

class MaskedLanguage : public LabelTask {
 public:
  using LabelTask::LabelTask;
};

}  // namespace

Choice<TaskKind> masked_language_task() { return task_choice<MaskedLanguage>("masked_language"); }

}  // namespace lockstep
