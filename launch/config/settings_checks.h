// What keys of a configuration must be to each other. A plain function.
#pragma once

#include "launch/config/settings.h"

namespace lockstep {

// Throws ExitCode::kConfig, naming the key and its place, where settings do not go together: those of a run of `ranks`
// ranks, all keys of which are bound and whose batch.micro is resolved.
void check_settings(const Settings& settings, const App& app, int ranks);

}  // namespace lockstep
