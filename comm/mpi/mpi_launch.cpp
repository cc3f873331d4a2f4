#include "comm/mpi/mpi_launch.h"

#include <cstdlib>
#include <initializer_list>

#include "comm/mpi/mpi_comm.h"

namespace lockstep {

bool mpi_launched() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name)) return true;
  return false;
}

namespace {

int first_number(std::initializer_list<const char*> names, int standard) {
  for (const char* name : names)
    if (const char* text = std::getenv(name)) return std::atoi(text);
  return standard;
}

}  // namespace

std::string foreign_launcher() {
  if (mpi_launched()) return {};
  if (first_number({"SLURM_STEP_NUM_TASKS"}, 1) > 1 && std::getenv("SLURM_PROCID"))
    return "srun started several processes, but without MPI: use srun --mpi=pmix, or `lockstep launch` in the job";
  if (first_number({"WORLD_SIZE"}, 1) > 1 && std::getenv("RANK"))
    return "RANK and WORLD_SIZE are set, as by torchrun, but no MPI launcher started this process: use `lockstep "
           "launch`";
  return {};
}

int launched_local_size() {
  // Slurm writes "2(x3)": the leading number is enough.
  return first_number({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"}, 0);
}
int launched_rank() { return first_number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}, -1); }
int launched_size() { return first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}, 0); }

}  // namespace lockstep
