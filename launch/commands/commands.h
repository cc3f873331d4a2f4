// The commands of the lockstep program, one function each; launch/run.cpp chooses.
// Plain functions: arguments without the command's own name; they return the exit code.
// They know nothing of one another.
#pragma once

#include <string>
#include <vector>

#include "launch/app.h"

namespace lockstep {

int train_command(const App& app, const std::vector<std::string>& arguments);
int eval_command(const App& app, const std::vector<std::string>& arguments);
int generate_command(const App& app, const std::vector<std::string>& arguments);
int data_command(const App& app, const std::vector<std::string>& arguments);
int config_command(const App& app, const std::vector<std::string>& arguments);
int checkpoint_command(const App& app, const std::vector<std::string>& arguments);
int devices_command(const App& app, const std::vector<std::string>& arguments);
int plan_command(const App& app, const std::vector<std::string>& arguments);
int prove_command(const App& app, const std::vector<std::string>& arguments);
int bench_command(const App& app, const std::vector<std::string>& arguments);

// Text that a command prints as its result: standard output of the first process alone. It may quote what a file holds:
// control characters but newlines and tabs come escaped (core/base/escape.h), unless the text itself was asked for.
// Throws ExitCode::kStorage where it cannot be written.
enum class Shown { kEscaped, kAsItIs };
void print(const std::string& text, Shown shown = Shown::kEscaped);

}  // namespace lockstep
