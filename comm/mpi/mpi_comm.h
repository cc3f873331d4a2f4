// MpiComm: ranks as MPI processes. Blocking MPI calls run on the communicator's own stream thread, since nonblocking
// calls make no progress by themselves in Open MPI. Exchanges tensors in host memory, and GPU tensors through host
// memory (comm/staged_channel). Where all ranks of a communicator are on one machine and may read each other's memory
// (comm/peer_memory), they wait for each other on a board in shared memory (comm/progress_board), and gathers,
// broadcasts and share() take no messages; between machines of as many consecutive ranks each, gathers take messages
// between machines alone. With LOCKSTEP_PEER_MEMORY=off messages take everything.
// comm/mpi/absent.cpp replaces it in builds without MPI. Each process has one world communicator at a time.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace lockstep {

bool mpi_built();           // was MPI found at build time?
std::string mpi_version();  // of the library, "Open MPI v4.1.4"; empty in builds without MPI. Does not start MPI.
bool mpi_launched();        // was this process started by an MPI launcher (mpirun, srun --mpi)? Reads the environment
                            // only.
// Sets how long ranks wait for each other until MPI has started and their first communicator exists; the default is 60
// s. After that the process ends with ExitCode::kRankLost and names the missing ranks as far as they are known.
void mpi_start_within(double seconds);
struct MpiPlace {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
};
// Initialises MPI at the first call (with MPI_THREAD_MULTIPLE). MPI is finalised at process exit, unless a communicator
// was aborted.
MpiPlace mpi_place();
std::unique_ptr<Communicator> make_mpi_communicator(const CommOptions& options = {});
// Ends all ranks of the job immediately with this exit code.
[[noreturn]] void mpi_abort(int exit_code);

}  // namespace lockstep
