// MpiComm: ranks as MPI processes. Blocking MPI calls run on the communicator's own stream thread, since nonblocking
// ones do not progress by themselves (Open MPI). Serves tensors in the host's memory and, by way of it, in a GPU's
// (comm/staged_channel). comm/absent.cpp stands in where MPI was not found at build time. Each
// process has one world communicator at a time.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace lockstep {

bool mpi_built();     // was MPI found at build time?
bool mpi_launched();  // was this process started by an MPI launcher (mpirun, srun --mpi)? Looks at the environment
                      // only.
// How long ranks wait for each other until MPI has started and their first communicator is there; 60 s unless set
// before. Then the process ends with ExitCode::kRankLost, and says which ranks are missing as far as that is known.
void mpi_start_within(double seconds);
struct MpiPlace {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
};
// Initialises MPI at the first call (with THREAD_MULTIPLE); finalised at process exit unless aborted.
MpiPlace mpi_place();
std::unique_ptr<Communicator> make_mpi_communicator(const CommOptions& options = {});
// Ends all ranks of the job with this exit code, at once.
[[noreturn]] void mpi_abort(int exit_code);

}  // namespace lockstep
