// StagedChannel: adapts a channel that works on host memory to GPU memory: it copies the input to pinned host memory,
// runs the call on that, and copies the result back. Calls on host memory pass unchanged. With it, ranks that are
// threads or MPI processes exchange GPU tensors, even if several ranks share a GPU. Owned by a QueuedComm; runs on its
// stream thread.
#pragma once

#include <memory>

#include "comm/queued_comm.h"

namespace lockstep {

// The staging memory grows to the size of the largest call so far and is kept.
std::shared_ptr<Channel> make_staged_channel(std::shared_ptr<Channel> inner);

}  // namespace lockstep
