// run_ranks: ranks as threads in a unit test, each with a communicator, a stream and a context of its own.
// A plain function.
// Knows nothing of what the ranks do.
#pragma once

#include <functional>

#include "comm/communicator.h"

namespace lockstep::testing {

struct RankOptions {
  CommOptions comm{.deadline = Seconds(30)};
  Device device = {};  // kAsyncCpu: every stream is a thread
  int threads = 1;     // compute threads of each rank
};

// Runs body(communicator) on `size` ranks. What a rank throws aborts the group; the first such exception is rethrown
// here.
void run_ranks(int size, const std::function<void(Communicator&)>& body, const RankOptions& options = {});

}  // namespace lockstep::testing
