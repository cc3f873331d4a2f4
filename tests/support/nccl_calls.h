// NCCL's own functions, which do nothing but note what they are called with: in the place of the library, for the file
// that calls it (comm/nccl).
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::testing {

// The GPU that was current at the last call of each, by a short name: "connect", "split", "register", "deregister",
// "finalize", "destroy", "abort".
std::map<std::string, int>& nccl_calls();

// An exchange among ranks, and what its caller passed. `type` and `op` are NCCL's names for them, such as "ncclFloat32"
// and "ncclSum", or empty; `peer` is the root or the other rank, or -1.
struct NcclExchange {
  std::string name;
  const void* in = nullptr;
  void* out = nullptr;
  size_t n = 0;
  std::string type = {}, op = {};
  int peer = -1;
  const void* comm = nullptr;
  const void* stream = nullptr;
};
std::vector<NcclExchange>& nccl_exchanges();
// What exchanges return from now on, by NCCL's name: "ncclSuccess" at first.
void set_nccl_result(const std::string& name);

}  // namespace lockstep::testing
