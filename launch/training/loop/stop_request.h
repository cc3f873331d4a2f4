// Signals that ask a run to save and end. Plain functions on the process's state, which is that of all its ranks.
#pragma once

namespace lockstep {

// From now on SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 are such requests. A second signal of the same kind, unless
// it comes within a second and is one request with the first, ends the process immediately. So does the first before
// stop_at_steps(), when there is nothing to save and many ranks take long to start: with ExitCode::kSaved.
void catch_stop_requests();
// The first step begins.
void stop_at_steps();
// Whether the run was asked to stop. Checked between steps, by every rank.
bool stop_is_requested();

}  // namespace lockstep
