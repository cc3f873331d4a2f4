// A fake NCCL on the CPU, on the memory of fake GPUs (fake_gpu.h): ranks are threads of this process, and operations
// run in the order of their queues, on the queues' threads, each waiting for its peers there as NCCL's kernels do on a
// GPU. So a missing event, or operations whose order does not fit, hang or give NaN here too. One per process, made at
// the first call.
#pragma once

#include <string>
#include <vector>

#include "comm/nccl/nccl_api.h"

namespace lockstep::testing {

struct FakeNcclFaults {
  std::string async_error = "";  // every communicator reports it from now on
  bool connect_hangs = false, abort_hangs = false;
  std::string version = "2.28.9";
  bool windows = true;               // else the GPUs have none, and nobody is to blame
  int no_window_on = -1;             // a rank that alone has none
  int fails_before_meeting_on = -1;  // the rank on which registering fails, while the others wait for it
  bool register_hangs = false;
};

// Makes it the NCCL of this process, with these faults from now on.
NcclApi& fake_nccl(const FakeNcclFaults& faults = {});

// What real NCCL forbids and does not always see: memory given back while it is a window, a communicator closed before
// its windows, a window in another GPU's memory. And operations so far that found all their memory in windows.
std::vector<std::string> fake_nccl_misuse();
int64_t fake_nccl_direct();
int64_t fake_nccl_version_calls();  // how often a rank asked for the version
int64_t fake_nccl_connected();      // communicators that were made of an id, by rank
int64_t fake_nccl_shared();         // communicators that were split from others, by rank

}  // namespace lockstep::testing
