// The class of each pixel: labels [B, H, W], of which 0 is the background.
#include "core/tasks/model_task.h"

namespace lockstep {
namespace {

class Segment : public LabelTask {
 public:
  using LabelTask::LabelTask;
  std::vector<Metric> metrics() const override { return mask_metrics(); }

 protected:
  bool takes_class_weights() const override { return true; }
};

}  // namespace

Choice<TaskKind> segment_task() { return task_choice<Segment>("segment"); }

}  // namespace lockstep
