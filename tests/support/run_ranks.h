// run_ranks: ranks as threads in a unit test, each with a communicator, a stream and a context of its own.
// A plain function.
#pragma once

#include <functional>

#include "comm/communicator.h"

namespace lockstep::testing {

// A deadline of ranks of which none is missing: none may be late for it, however busy the machine is.
constexpr Seconds kPatience{300};

struct RankOptions {
  CommOptions comm{.deadline = kPatience};
  // kAsyncCpu: every stream is a thread. LOCKSTEP_TEST_DEVICE=fake-gpu (tests/support/fake_gpu.h) or cuda (the GPU that
  // is there, shared by all ranks) in the environment stands above this: whole suites run there.
  Device device = {};
  int threads = 1;  // compute threads of each rank
};

// Runs body(communicator) on `size` ranks. What a rank throws aborts the group; the first such exception is rethrown
// here.
void run_ranks(int size, const std::function<void(Communicator&)>& body, const RankOptions& options = {});

}  // namespace lockstep::testing
