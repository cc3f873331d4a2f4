// StagedChannel: a channel for the host's memory made to serve a GPU's: what lies there is copied to pinned memory, the
// call runs on that, and what came is copied back. Calls on host memory pass unchanged. So ranks as threads or MPI
// processes exchange tensors of GPUs, several ranks of one GPU among them. Owned by a QueuedComm; works on its stream
// thread.
#pragma once

#include <memory>

#include "comm/queued_comm.h"

namespace lockstep {

// The staging memory is as large as the largest call so far, and kept.
std::shared_ptr<Channel> make_staged_channel(std::shared_ptr<Channel> inner);

}  // namespace lockstep
