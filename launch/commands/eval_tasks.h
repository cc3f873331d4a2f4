// `lockstep eval MODEL --task FILE`: a model's scores on tasks of lm-evaluation-harness. A plain function.
#pragma once

#include "launch/app.h"
#include "launch/arguments/command_line.h"

namespace lockstep {

int eval_tasks(const App& app, Arguments& arguments);

}  // namespace lockstep
