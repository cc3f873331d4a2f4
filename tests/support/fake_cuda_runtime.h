// What stands in for the CUDA runtime, so that the backend runs on a machine without a GPU: streams finish at once
// unless held, each call checks that the right GPU is current, and errors come when a test asks for them.
// Built against CUDA's own headers and linked in its place.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {

struct FakeCudaRuntime {
  struct Gpu {
    int major = 9, minor = 0;
    int64_t free_bytes = int64_t(1) << 30;
  };
  std::vector<Gpu> gpus = {{}, {}};
  int driver = CUDART_VERSION;
  std::map<std::string, cudaError_t> fails;  // by the call's name, each time
  bool busy = false;                         // streams have not finished
  double clock_ms = 0;                       // the GPUs' time, which events note

  // What was seen.
  int current = 0;
  int waits = 0;    // of the host, on events
  int queries = 0;  // of events
  int graphs = 0;   // made and not destroyed
  int launches = 0;
  std::set<cudaStream_t> capturing;
  int events = 0;                                            // made and not destroyed
  std::map<void*, std::pair<int, int64_t>> device_memory;    // GPU (-1: pinned), bytes
  std::map<cudaStream_t, std::pair<int, int>> streams;       // GPU, priority
  std::vector<std::pair<cudaStream_t, cudaEvent_t>> waited;  // streams, on events
  std::vector<std::string> misuse;                           // a call for another GPU than the current one
};

FakeCudaRuntime& fake_cuda();
void reset_fake_cuda();

}  // namespace lockstep::testing
