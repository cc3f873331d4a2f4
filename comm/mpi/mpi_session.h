// MpiSession: the state of MPI in this process. MPI is initialised once, and finalised at exit unless that could hang.
// The only header that includes mpi.h. One per process, used by all communicators.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "comm/mpi/mpi_comm.h"

namespace lockstep {

// If `result` is an MPI error code, throws ExitCode::kRankLost with MPI's error text, or kDevice if MPI ran out of
// memory.
void must(int result, std::string_view what);

// Of all ranks' calls: do their fingerprints agree, and does what they send add up with what they expect? A plain
// value.
struct CallSummary {
  uint64_t least, largest;  // of the fingerprints
  uint64_t balance;         // sum, 0 where it adds up
};

struct MpiSession {
  MpiPlace place;
  MPI_Op max = MPI_OP_NULL, min = MPI_OP_NULL;    // for floating-point types; they propagate NaN
  MPI_Datatype summary_type = MPI_DATATYPE_NULL;  // of a CallSummary
  MPI_Op summary = MPI_OP_NULL;
  std::atomic<bool> broken{false};  // a communicator was poisoned: MPI_Finalize could hang
  std::atomic<int> running{0};      // calls in progress
  std::atomic<int> open{0};         // communicators that are not closed

  MpiSession();
  MPI_Op op_of(ReduceOp op, DType dtype) const;
};

// Initialises MPI at the first call.
MpiSession& session();

}  // namespace lockstep
