// Options that `lockstep sweep` and `lockstep submit --sweep` share: what the points are drawn and ranked by. Plain
// functions.
#pragma once

#include <string>
#include <vector>

#include "launch/arguments/command_line.h"
#include "launch/config/settings.h"
#include "launch/sweep/points.h"
#include "launch/sweep/record.h"

namespace lockstep {

std::vector<Option> search_options();
// Those that are given, as words of a command line.
std::vector<std::string> search_words(const Arguments& arguments);

// Of FILE.yaml, its overrides and these options, without what its data and configurations tell. Throws
// ExitCode::kUsage.
SweepSpec sweep_of(const App& app, const Arguments& arguments, int ranks);

// --mode, which is "min", "max" or empty, and --by, which is "best", "last" or empty. These throw ExitCode::kUsage.
std::string mode_of(const Arguments& arguments);
std::string by_of(const Arguments& arguments);

// What is given, and otherwise what `settings`, of the first point, have. Throws ExitCode::kConfig where nothing tells
// whether higher is better, and for a metric that a point without validation data would not measure.
SweepRanking ranking_of(const Arguments& arguments, const Settings& settings, const SweepPoints& points);

}  // namespace lockstep
