#include "core/device/cuda/launch.h"

#include <cxxabi.h>

#include <cstdlib>

namespace lockstep {

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
