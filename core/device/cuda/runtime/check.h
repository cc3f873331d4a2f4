// Errors of the CUDA runtime in words: what happened, on which GPU, what to do. Stateless.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace lockstep {

// "GPU 1: a kernel reached outside its memory (cudaErrorIllegalAddress), seen at: waiting for the GPU; ..."
std::string cuda_error_text(cudaError_t error, int gpu, const char* tried);

// Throws Error(ExitCode::kDevice) with the text above, for the GPU that is current on this thread.
[[noreturn]] void throw_cuda_error(cudaError_t error, const char* tried);

// `tried`: what the call was to do, in words: "waiting for the GPU".
inline void check_cuda(cudaError_t error, const char* tried) {
  if (error != cudaSuccess) [[unlikely]]
    throw_cuda_error(error, tried);
}

// Makes the GPU current on this thread. The runtime is asked each time (tens of nanoseconds), as a library that shares
// the thread may have changed it.
inline void make_current(int gpu) {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == gpu) return;
  check_cuda(cudaSetDevice(gpu), "choosing the GPU");
}

}  // namespace lockstep
