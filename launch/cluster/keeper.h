// Keeper: the parent process of mpirun, and a child of the launcher. It starts mpirun, ends as mpirun does, and
// outlives the launcher: where that is killed, the keeper ends mpirun, which may not end when it is asked to once while
// its ranks start, and removes the folders of Open MPI's files. Run as `lockstep agent --keep`, by `lockstep launch`.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct KeeperOptions {
  bool shielded = false;                  // mpirun does not get SIGTERM
  std::vector<std::string> folders = {};  // absolute paths, which are removed where the launcher does not do it
  std::vector<std::string> command;       // mpirun's
};

// The words of the command that runs it, after this program's name.
std::vector<std::string> keeper_words(const KeeperOptions& options);

// What stands after `lockstep agent --keep`. Throws ExitCode::kUsage.
KeeperOptions keeper_options(const std::vector<std::string>& given);

// Waits for mpirun. Standard input is a pipe whose other end the launcher has: once it is closed, by the launcher or by
// its end, mpirun is asked to end, and a few seconds later it is killed with its process group, this process included.
// All signals that can be blocked are without effect. Returns the exit code of mpirun; where a signal ended that, the
// same one ends this process. Throws ExitCode::kDevice if no process can be made.
int run_keeper(const KeeperOptions& options);

}  // namespace lockstep
