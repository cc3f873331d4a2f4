// The class of a sample: labels [B].
#include "core/tasks/model_task.h"

namespace lockstep {
namespace {

class Classify : public LabelTask {
 public:
  using LabelTask::LabelTask;
  std::vector<Metric> metrics() const override { return class_metrics(); }
  bool weighs_samples() const override { return true; }

 protected:
  bool takes_class_weights() const override { return true; }
};

}  // namespace

Choice<TaskKind> classify_task() { return task_choice<Classify>("classify"); }

}  // namespace lockstep
