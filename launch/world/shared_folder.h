// Whether all machines of a job see the same folder under one path.
#pragma once

#include <string>

#include "comm/communicator.h"

namespace lockstep {

// Rank 0 makes an empty file in `dir`, which all others look for, and removes it. Returns, on each rank, why this
// machine does not see the folder of rank 0; empty: it does. Collective. Throws on all ranks where rank 0 cannot write
// there.
std::string why_not_shared(Communicator& comm, const std::string& dir);

}  // namespace lockstep
