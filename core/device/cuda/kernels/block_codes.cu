// Blocks of values to 8-bit codes and back: the bits are a CPU's.
#include "core/base/state_chunk.h"
#include "core/device/cuda/kernels/launch.h"
#include "core/kernels/args.h"
#include "core/kernels/codes/block_codes.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kThreads = 256;
// Threads of a block of values.
constexpr int kLanes = 8, kPerLane = static_cast<int>(kStateChunk) / kLanes;

__global__ void __launch_bounds__(kThreads) encode_grid(const __grid_constant__ BlockCodesArgs a, int64_t blocks) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x / kLanes;
  const int64_t lane = threadIdx.x % kLanes, first = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / kLanes;
  // All of a warp's lanes stay for its shuffles.
  for (int64_t b = first; b - (threadIdx.x % 32) / kLanes < blocks; b += step) {
    float x[kPerLane];
    BlockExtent extent;
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const int64_t i = b * kStateChunk + k * kLanes + lane;
      x[k] = i < a.count ? a.values[i] : 0.0f;
      extent.add(x[k]);
    }
    float largest = extent.largest, flags = (extent.negative ? 1.0f : 0.0f) + (extent.invalid ? 16.0f : 0.0f);
    for (int apart = kLanes / 2; apart > 0; apart /= 2) {
      const float other = __shfl_xor_sync(0xFFFFFFFFu, largest, apart);
      largest = other > largest ? other : largest;
      flags += __shfl_xor_sync(0xFFFFFFFFu, flags, apart);  // counts of lanes
    }
    extent.largest = largest;
    extent.invalid = flags >= 16.0f;
    extent.negative = !extent.invalid && flags > 0;
    const float scale = extent.scale();
    if (b >= blocks) continue;
    if (lane == 0) a.scales[b] = scale;
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const int64_t i = b * kStateChunk + k * kLanes + lane;
      if (i < a.count) a.codes[i] = encode(x[k], scale);
    }
  }
}

__global__ void __launch_bounds__(kThreads) decode_grid(const __grid_constant__ BlockCodesArgs a) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < a.count; i += step)
    a.values[i] = decode(a.codes[i], a.scales[i / kStateChunk]);
}

}  // namespace

void encode_blocks(Parallel& where, const BlockCodesArgs& a) {
  CudaQueue& queue = cuda_queue(where);
  const int64_t blocks = (a.count + kStateChunk - 1) / kStateChunk;
  launch(encode_grid, queue, blocks_for(queue, blocks * kLanes, kThreads), kThreads, a, blocks);
}

void decode_blocks(Parallel& where, const BlockCodesArgs& a) {
  CudaQueue& queue = cuda_queue(where);
  launch(decode_grid, queue, blocks_for(queue, a.count, kThreads), kThreads, a);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
