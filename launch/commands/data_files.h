// The forms of `lockstep data` that take dataset files as files: verify, split, merge. Plain functions, for
// data_command.cpp.
#pragma once

#include <vector>

#include "launch/arguments/command_line.h"

namespace lockstep {

std::vector<Command> data_file_forms();
int data_file_form(const Arguments& arguments);  // runs one of them; returns the exit code

}  // namespace lockstep
