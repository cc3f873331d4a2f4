// What the MPI launcher's environment variables say about this process. Plain functions.
#pragma once

namespace lockstep {

// The number of ranks of this job on this host; 0 if the launcher does not say.
int launched_local_size();
// The rank of this process and the number of ranks of the job; -1 and 0 if the launcher does not say.
int launched_rank();
int launched_size();

}  // namespace lockstep
