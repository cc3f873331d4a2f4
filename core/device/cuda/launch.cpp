#include "core/device/cuda/launch.h"

#include <cxxabi.h>

#include <cstdlib>

namespace lockstep {

int64_t most_shared() {
  int device = 0, bytes = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cudaDeviceGetAttribute");
  return bytes;
}

void ask_for_shared(const void* kernel, int64_t bytes) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, narrow<int>(bytes));
  if (error != cudaSuccess) throw_launch_error(error, kernel);
}

void throw_launch_error(cudaError_t error, const void* kernel) {
  const char* symbol = nullptr;
  std::string name = "a kernel without a name";
  if (cudaFuncGetName(&symbol, kernel) == cudaSuccess && symbol) {
    char* plain = abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr);
    name = plain ? plain : symbol;
    std::free(plain);
  }
  throw_cuda_error(error, cat("starting ", name).c_str());
}

}  // namespace lockstep
