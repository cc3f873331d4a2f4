// LocalComm: ranks as threads of one process. It needs no launcher, so any unit test can run several ranks. Exchanges
// tensors in host memory, and GPU tensors through host memory (comm/staged_channel). The communicators of all ranks
// share one LocalGroup.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

// One communicator for each of `size` ranks; the caller passes each to the thread of its rank.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int size, const CommOptions& options = {});

}  // namespace lockstep
