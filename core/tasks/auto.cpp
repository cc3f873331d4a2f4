// The model's own task, or the one that the data's targets are of.
#include <algorithm>

#include "core/tasks/task.h"

namespace lockstep {
namespace {

std::string task_of_data(const Model& model, const TaskSpec& data) {
  if (data.regression) return "regress";
  const TensorSpec* labels = data.find(kLabels);
  const int rank = labels ? labels->shape.rank() : model.traits().rank;
  if (rank == 1) return data.next_tokens || !labels ? "language" : "masked_language";
  return rank >= 2 ? "segment" : "classify";
}

struct AutoKind final : TaskKind {
  std::unique_ptr<Task> build(std::unique_ptr<Model> model, const TaskContext& context) const override {
    const std::string own = model->task(), name = own.empty() ? task_of_data(*model, context.data) : own;
    const std::vector<Choice<TaskKind>> all = context.tasks.empty() ? builtin_tasks() : context.tasks;
    const bool there = std::any_of(all.begin(), all.end(), [&](auto& c) { return c.name == name; });
    require(there, ExitCode::kConfig, "task.name: the model ", context.model_name, " is made for the task ", name,
            ", which this program does not have (App::tasks)");
    auto task = make_choice(all, name)->build(std::move(model), context);
    task->set_kind(name);
    return task;
  }
};

}  // namespace

Choice<TaskKind> auto_task() { return choice<TaskKind, AutoKind>("auto"); }

}  // namespace lockstep
