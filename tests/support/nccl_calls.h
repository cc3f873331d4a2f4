// NCCL's own functions, which do nothing but note the GPU that was current at the last call of each: in the place of
// the library, for the file that calls it (comm/nccl).
#pragma once

#include <map>
#include <string>

namespace lockstep::testing {

// By a short name: "connect", "split", "register", "deregister", "finalize", "destroy", "abort".
std::map<std::string, int>& nccl_calls();

}  // namespace lockstep::testing
