// Which checkpoint of a run a command takes: the newest, or what --best or --at says. Plain functions.
#pragma once

#include <string>
#include <vector>

#include "launch/arguments/command_line.h"

namespace lockstep {

// `options`, and --best and --at.
std::vector<Option> with_choice_of_checkpoint(std::vector<Option> options);

// The first positional argument, or the path of the checkpoint within it that --best or --at names. Throws
// ExitCode::kUsage for both at once, and for either where the argument is no run directory, kMissingInput where it
// holds no such checkpoint.
std::string chosen_checkpoint(const Arguments& arguments);

// Takes "init.from=PATH" out of the positional arguments behind the first one, and returns it as an override: where the
// model is now whose frozen parameters the run's checkpoints name and do not hold.
std::vector<std::string> take_init_from(Arguments& arguments);

}  // namespace lockstep
