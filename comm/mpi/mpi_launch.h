// What the MPI launcher's environment variables say about this process. Plain functions.
#pragma once

#include <string>

namespace lockstep {

// How this process was started as one of several, by a launcher that MPI does not see: srun without MPI's help, or one
// that sets RANK and WORLD_SIZE. Empty: it was not. Such processes would all train alone.
std::string foreign_launcher();

// The number of ranks of this job on this host; 0 if the launcher does not say.
int launched_local_size();
// The rank of this process and the number of ranks of the job; -1 and 0 if the launcher does not say.
int launched_rank();
int launched_size();

// Names the folder for memory that ranks of one machine share, in place of /dev/shm: Open MPI's own variable, of
// version 4, which 5 knows, too. `lockstep launch` sets it, so that nothing is left where ranks are killed.
inline constexpr char kSharedFolder[] = "OMPI_MCA_btl_vader_backing_directory";

}  // namespace lockstep
