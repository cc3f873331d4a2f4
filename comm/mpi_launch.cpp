#include "comm/mpi_launch.h"

#include <cstdlib>

#include "comm/mpi_comm.h"

namespace lockstep {

bool mpi_launched() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name)) return true;
  return false;
}

int launched_local_size() {
  // Slurm writes "2(x3)": the leading number is enough.
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"})
    if (const char* text = std::getenv(name)) return std::atoi(text);
  return 0;
}

}  // namespace lockstep
