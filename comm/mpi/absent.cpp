// Replaces mpi_comm.cpp in builds without MPI.
#include <cstdlib>

#include "comm/mpi/mpi_comm.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      ExitCode::kUsage,
      "this build of lockstep has no MPI; install it (Debian, Ubuntu: apt-get install libopenmpi-dev openmpi-bin) and "
      "build again, or use --ranks N");
}

}  // namespace

bool mpi_built() { return false; }
std::string mpi_version() { return {}; }
void mpi_start_within(double) {}
MpiPlace mpi_place() { refuse(); }
std::unique_ptr<Communicator> make_mpi_communicator(const CommOptions&) { refuse(); }
void mpi_abort(int exit_code) { std::_Exit(exit_code); }

}  // namespace lockstep
