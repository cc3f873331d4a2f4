// NCCL that the CPU plays, on the memory of fake GPUs (fake_gpu.h): ranks are threads of this process, and operations
// run in the order of their queues, on the queues' threads, each waiting for its peers there as NCCL's kernels do on a
// GPU. So a missing event, or operations whose order does not fit, hang or give NaN here too. One per process, made at
// the first call. Knows nothing of NCCL itself.
#pragma once

#include <string>

#include "comm/nccl_api.h"

namespace lockstep::testing {

struct FakeNcclFaults {
  std::string async_error = "";  // every communicator reports it from now on
  bool connect_hangs = false, abort_hangs = false;
  std::string version = "2.28.9";
};

// Makes it the NCCL of this process, with these faults from now on.
NcclApi& fake_nccl(const FakeNcclFaults& faults = {});

}  // namespace lockstep::testing
