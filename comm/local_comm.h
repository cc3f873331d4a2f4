// LocalComm: ranks as threads of one process. No launcher, and any test can have several ranks. Serves tensors in the
// host's memory and, by way of it, in a GPU's (comm/staged_channel).
// The group is shared by its ranks' communicators.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

// One communicator for each of `size` ranks; hand each to its thread.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int size, const CommOptions& options = {});

}  // namespace lockstep
