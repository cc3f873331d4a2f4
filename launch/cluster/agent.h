// Agent: the parent process of one rank. It starts the rank when the launcher says so, hands on what the rank prints,
// reads its flight recorder, sees at once when it ends or is stopped, passes signals on, and ends it when the launcher
// says so, is gone, or has not been heard of for too long. The rank itself does nothing for all this but write its
// flight recorder. Run as `lockstep agent`, by `lockstep launch`.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Environment by which the launcher tells an agent where it is; see launch/cluster/attempt.cpp.
inline constexpr char kControlAddress[] = "LOCKSTEP_CONTROL";
inline constexpr char kControlSecret[] = "LOCKSTEP_SECRET";
// By which an agent tells its rank: the file of its flight recorder.
inline constexpr char kFlightFile[] = "LOCKSTEP_FLIGHT";

// Runs `command` as the rank that the environment names. Returns the exit code of the rank, 128 + N after signal N, or
// kRankLost if the launcher is lost.
int run_agent(const std::vector<std::string>& command);

// Replaces this process by the remote shell of a job, with the host as it takes it: see reach_table(). `given`: the
// host as Open MPI knows it, and what follows it.
int run_reach(const std::vector<std::string>& given);
// Replaces this process by a program that does not get SIGTERM. Returns an exit code where that fails.
int run_shielded(const std::vector<std::string>& command);

}  // namespace lockstep
