// Asks the process that leads a run to save and end. What a run directory says of processes may be stale or planted, so
// a process is signalled only where the system's own view of it agrees.
#pragma once

#include <cstdint>
#include <string>

#include "launch/records/run_status.h"

namespace lockstep {

// Sends SIGTERM to the launcher of a running run, or to its rank 0 where there is none, and returns the process. A
// launcher must run this program, since the time that ranks.jsonl states, and have the run directory open; rank 0 must
// have the lock open. Throws ExitCode::kBadData for one that does not, kUsage for one of another machine or that cannot
// be signalled.
int64_t ask_to_end(const std::string& dir, const RunStatus& run);

}  // namespace lockstep
