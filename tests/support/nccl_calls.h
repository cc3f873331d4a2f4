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

// A collective operation, and what its caller passed, as NCCL numbers types, operations and results.
struct NcclOperation {
  std::string name;
  const void* in = nullptr;
  void* out = nullptr;
  size_t n = 0;
  int type = -1, op = -1, peer = -1;
  const void* comm = nullptr;
  const void* stream = nullptr;
};
std::vector<NcclOperation>& nccl_operations();
// What operations return from now on: ncclSuccess at first.
void set_nccl_result(int result);

}  // namespace lockstep::testing
