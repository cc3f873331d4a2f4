// What a report shows of one run, read from its run directory, also of a run that goes on, that is damaged or that has
// only some of its files. A plain function.
#pragma once

#include <cstddef>
#include <string>

#include "core/io/json.h"

namespace lockstep {

// One JSON object: name, state, curves (curve.h) by metric, rank times, events on the time axis, goodput, facts
// (about.json), configuration, what is wrong with the directory. `points`: groups of neighbouring values of a curve.
// Throws ExitCode::kMissingInput where there is no such directory, or it holds nothing of a run.
JsonObject run_report(const std::string& dir, size_t points);

}  // namespace lockstep
