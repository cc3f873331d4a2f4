// launch(): sets a kernel in motion on a queue; and how many blocks a grid takes. By the runtime's C call in place of
// <<<>>>, so that a host compiler reads the same text against a stand-in for CUDA (tests/support/cuda_stand_in).
// Stateless.
#pragma once

#include <cuda_runtime.h>

#include <tuple>
#include <utility>

#include "core/device/cuda/runtime/queue.h"

namespace lockstep {

// The error in words, naming the kernel: Error(ExitCode::kDevice).
[[noreturn]] void throw_launch_error(cudaError_t error, const void* kernel);

struct Grid {
  int64_t blocks = 1;
  int threads = 1;  // of a block
  // Of the kernel's `extern __shared__` array, beside which it has no other: launch() would not count that one.
  int64_t shared_bytes = 0;                         // up to most_shared()
  static constexpr int64_t kMostShared = 48 << 10;  // of a block, on any GPU and without asking
};

// Shared memory that a block may have on the queue's GPU where it is asked for, as launch() does.
int64_t most_shared(const CudaQueue& queue);
// Lets blocks of the kernel have it, on the queue's GPU, which is current. All of it, whatever a launch takes: launches
// of several threads do not take it from each other.
void ask_for_most_shared(const void* kernel, const CudaQueue& queue);

template <class... P, class... A>
void launch(void (*kernel)(P...), CudaQueue& queue, const Grid& grid, const A&... args) {
  if (grid.blocks == 0) return;
  static_assert(sizeof...(P) == sizeof...(A));
  const cudaStream_t stream = queue.stream();  // makes its GPU current
  if (grid.shared_bytes > Grid::kMostShared) ask_for_most_shared(reinterpret_cast<const void*>(kernel), queue);
  std::tuple<std::remove_const_t<P>...> values(args...);
  const cudaError_t error = std::apply(
      [&](auto&... value) {
        void* pointers[] = {&value..., nullptr};
        return cudaLaunchKernel(kernel, dim3(narrow<unsigned>(grid.blocks)), dim3(static_cast<unsigned>(grid.threads)),
                                pointers, static_cast<size_t>(grid.shared_bytes), stream);
      },
      values);
  if (error != cudaSuccess) [[unlikely]]
    throw_launch_error(error, reinterpret_cast<const void*>(kernel));
}
template <class... P, class... A>
void launch(void (*kernel)(P...), CudaQueue& queue, int64_t blocks, int threads, const A&... args) {
  launch(kernel, queue, Grid{blocks, threads}, args...);
}

// Blocks for `items` with one thread each, at most as many as the GPU holds at once: kernels step by their grid.
inline int64_t blocks_for(const CudaQueue& queue, int64_t items, int threads) {
  constexpr int kResident = 2048;  // threads of a multiprocessor
  const int64_t wanted = (items + threads - 1) / threads, most = int64_t(queue.processors()) * (kResident / threads);
  return wanted < most ? wanted : most;
}

}  // namespace lockstep
