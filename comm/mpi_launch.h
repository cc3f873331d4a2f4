// What an MPI launcher tells its processes through the environment.
// Plain functions.
#pragma once

namespace lockstep {

// Ranks of this job on this host; 0 where the launcher does not say.
int launched_local_size();
// Rank of this process, ranks of the job; -1 and 0 where the launcher does not say.
int launched_rank();
int launched_size();

}  // namespace lockstep
