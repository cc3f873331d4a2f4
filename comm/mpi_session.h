// MpiSession: MPI of this process: initialised once, finalised at exit where nothing hangs. The door to mpi.h.
// One per process; communicators look at it.
#pragma once

#include <mpi.h>

#include <atomic>
#include <string_view>

#include "comm/mpi_comm.h"

namespace lockstep {

// Throws ExitCode::kRankLost, or kDevice for want of memory, with MPI's own words where `result` is an error.
void must(int result, std::string_view what);

struct MpiSession {
  MpiPlace place;
  MPI_Op max = MPI_OP_NULL, min = MPI_OP_NULL;  // of floats
  std::atomic<bool> broken{false};              // a communicator was poisoned: MPI_Finalize could hang
  std::atomic<int> running{0};                  // calls under way
  std::atomic<int> open{0};                     // communicators

  MpiSession();
  MPI_Op op_of(ReduceOp op, DType dtype) const;
};

// Initialises MPI at the first call.
MpiSession& session();

}  // namespace lockstep
