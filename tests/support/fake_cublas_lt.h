// What stands in for cuBLASLt, so that its door runs on a machine without a GPU: column-major products on the CPU, with
// the epilogues that lockstep asks for, refused where a test says so. Built against cuBLASLt's own header and linked in
// its place.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::testing {

struct FakeCublasLt {
  // What a test asks for: calls with epilogues that are `refused` meet with
  std::function<bool(uint32_t epilogue)> refused = [](uint32_t) { return false; };
  cublasStatus_t heuristic = CUBLAS_STATUS_SUCCESS, launch = CUBLAS_STATUS_SUCCESS;  // these answers,
  bool none = false, only_split = false;  // no algorithm, or none that does not split its sum.
  uint32_t split_scheme = 0;              // how the algorithm that splits adds the parts

  // What was seen.
  uint32_t reduction_mask = ~0u;    // of the latest call of the heuristic
  int32_t compute_type = -1;        // of the latest description
  int chosen = 0;                   // calls of the heuristic
  std::vector<int> created_on;      // the GPU that was current at each start of the library
  std::vector<uint32_t> epilogues;  // of products that ran
  std::vector<std::string> misuse;
};

FakeCublasLt& fake_cublas_lt();

}  // namespace lockstep::testing
