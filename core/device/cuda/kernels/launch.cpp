#include "core/device/cuda/kernels/launch.h"

#include <cxxabi.h>

#include <cstdlib>
#include <mutex>
#include <set>

namespace lockstep {

int64_t most_shared(const CudaQueue& queue) {
  int bytes = 0;
  check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, queue.index()),
             "cudaDeviceGetAttribute");
  return bytes;
}

void ask_for_most_shared(const void* kernel, const CudaQueue& queue) {
  static std::mutex mutex;
  static std::set<std::pair<const void*, int>> asked;  // kernels and GPUs
  std::lock_guard lock(mutex);
  if (asked.contains({kernel, queue.index()})) return;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, narrow<int>(most_shared(queue)));
  if (error != cudaSuccess) throw_launch_error(error, kernel);
  asked.insert({kernel, queue.index()});
}

void throw_launch_error(cudaError_t error, const void* kernel) {
  const char* symbol = nullptr;
  std::string name = "a kernel without a name";
  if (cudaFuncGetName(&symbol, kernel) == cudaSuccess && symbol) {
    char* plain = abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr);
    name = plain ? plain : symbol;
    std::free(plain);
  }
  throw_cuda_error(error, str("starting ", name).c_str());
}

}  // namespace lockstep
