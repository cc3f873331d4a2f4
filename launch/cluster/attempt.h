// One start of a job: mpirun with an agent for each rank, watched until all ranks have ended.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/cluster/diagnosis.h"
#include "launch/cluster/mpirun.h"

namespace lockstep {

struct AttemptOptions {
  MpirunOptions mpirun;  // its command: what each rank runs, without the agent
  std::string agent;     // this program's path, the same on every machine
  Patience patience;
  double start_within = 60;                                      // seconds until all ranks must have been started
  int number = 1;                                                // of the attempt, in the environment of the ranks
  std::vector<std::string> exported;                             // names of variables for the ranks of all machines
  std::vector<std::pair<std::string, std::string>> environment;  // of mpirun, added to this process's
  bool plain = true;     // ranks show their progress as lines; false: `progress` is shown in place of it
  bool verbose = false;  // also show what mpirun says
  std::function<void(const FlightStep&)> progress;                   // after each step of rank 0
  std::function<void(const std::vector<RankView>&)> view;            // every second
  std::function<void(const Diagnosis&, int64_t last_step)> decided;  // before the ranks that are left are ended
  std::function<int()> next_signal;  // a signal for the ranks, or SIGTSTP for this process, that has arrived; 0: none
};

struct AttemptResult {
  int code = 0;
  std::optional<Diagnosis> diagnosis;  // absent where all ranks ended by themselves, alike
  bool asked_to_stop = false;          // a signal was handed on to the ranks
  int64_t last_step = 0;
  double decided_s = 0,
         ended_s = 0;  // from the first sign of the failure to the diagnosis, and to the end of all ranks
};

// Throws ExitCode::kRankLost if the job cannot be started.
AttemptResult run_attempt(const AttemptOptions& options);

// The command that run_attempt() would run, for printing; with the name of each variable that it sets.
std::string attempt_line(const AttemptOptions& options);

}  // namespace lockstep
