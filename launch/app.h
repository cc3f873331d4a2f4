// App: what a program offers to the command line: its models, tasks, optimizers, schedules and sources of data. One
// value, passed in; the lockstep binary is
//   int main(int argc, char** argv) { return lockstep::run_program(argc, argv, lockstep::builtin()); }
// Owned by main.
#pragma once

#include <vector>

#include "core/tasks/task.h"
#include "data/streams/open_dataset.h"
#include "optim/builtin.h"
#include "optim/schedule.h"

namespace lockstep {

// Each list holds the choices of one key; a program appends its own. The first model is the default of model.name.
struct App {
  std::vector<Choice<ModelKind>> models = builtin_models();              // model.name
  std::vector<Choice<TaskKind>> tasks = builtin_tasks();                 // task.name
  std::vector<Choice<OptimizerKind>> optimizers = builtin_optimizers();  // optim.name
  std::vector<Choice<Schedule>> schedules = builtin_schedules();         // schedule.name
  std::vector<Choice<DataSource>> data = builtin_data();                 // data.name
  std::vector<Metric> metrics = {};  // what evaluations measure beside the loss and the task's own metrics
};

inline App builtin() { return {}; }

// The command line. Returns the process's exit code (docs/command-line.md).
int run_program(int argc, char** argv, const App& app);

extern const char* const kVersion;

}  // namespace lockstep
