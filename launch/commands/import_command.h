// `lockstep data import`: its formats and their options. Plain functions.
#pragma once

#include "launch/app.h"
#include "launch/arguments/command_line.h"

namespace lockstep {

// Makes the dataset file and prints its description; returns the exit code.
int import_data(const App& app, const Arguments& a);
Command import_form();

}  // namespace lockstep
