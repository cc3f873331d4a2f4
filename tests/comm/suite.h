// The ranks that a test of the suite runs on: threads, or, under mpirun, this process.
// Plain functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep::testing {

// Threads: groups of 1 to 5 ranks, on the CPU, on the asynchronous test device, on one fake GPU, and on a
// fake GPU each by the fake NCCL. MPI: the ranks that mpirun started, on the same devices, NCCL's aside.
void on_ranks(const std::function<void(Communicator&)>& body);

// Values that every type and every sum of a few of them holds exactly: small integers that depend on rank and place.
int64_t value_of(int rank, int64_t i);
Tensor tensor_of(const std::vector<double>& values, DType dtype);
Tensor values_of(int rank, int64_t n, DType dtype);  // value_of(rank, 0 ..)

const std::vector<DType>& all_dtypes();

}  // namespace lockstep::testing
