// Sums whose order is that of a CPU, to the bit: of gradients, of their squares by chunks of kStateChunk elements, and
// of those by a tree.
#include "core/base/state_chunk.h"
#include "core/device/cuda/kernels/launch.h"
#include "core/kernels/pointwise.h"
#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {

void pointwise(Parallel&, PointwiseOp, const PointwiseArgs&);

namespace {

constexpr int kThreads = 256;

// Eight threads a chunk, each the CPU's lane.
constexpr int kLanes = 8, kPerLane = static_cast<int>(kStateChunk) / kLanes;

__global__ void __launch_bounds__(kThreads) chunk_norms_grid(const float* x, int64_t n, int64_t chunks, double* out) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x / kLanes;
  const int64_t lane = threadIdx.x % kLanes, first = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / kLanes;
  // All of a warp's lanes stay for its shuffles.
  for (int64_t c = first; c - (threadIdx.x % 32) / kLanes < chunks; c += step) {
    double sum = 0;
    float v[kPerLane];
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const int64_t i = c * kStateChunk + k * kLanes + lane;
      v[k] = i < n ? x[i] : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) sum += static_cast<double>(v[k]) * static_cast<double>(v[k]);
    for (int apart = kLanes / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, apart);
    if (lane == 0 && c < chunks) out[c] = sum;
  }
}

// A tree that splits after the largest power of two below its length joins neighbours level by level, and a last one
// without a neighbour goes up as it is. First every aligned piece of a range, whose sum takes its first value's place;
// then the pieces.
constexpr int64_t kPiece = 2048;

// values[0], values[step], ... below n, into values[0]; all threads of a block.
__device__ void join_pairs(double* values, int64_t n, int64_t step) {
  for (; step < n; step *= 2) {
    __syncthreads();
    for (int64_t i = threadIdx.x * 2 * step; i + step < n; i += int64_t(blockDim.x) * 2 * step)
      values[i] = values[i] + values[i + step];
  }
  __syncthreads();
}

constexpr int kBlocksARange = 32;

__global__ void __launch_bounds__(kThreads) piece_sums(const __grid_constant__ TreeSumsArgs a) {
  __shared__ double piece[kPiece];
  const int64_t range = blockIdx.x / kBlocksARange;
  const int64_t begin = a.ranges[2 * range], n = a.ranges[2 * range + 1] - begin;
  for (int64_t at = blockIdx.x % kBlocksARange * kPiece; at < n; at += kBlocksARange * kPiece) {
    const int64_t size = n - at < kPiece ? n - at : kPiece;
    double* const values = a.values + begin + at;
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) piece[i] = values[i];
    join_pairs(piece, size, 1);
    if (threadIdx.x == 0) values[0] = piece[0];
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads) range_sums(const __grid_constant__ TreeSumsArgs a) {
  const int64_t begin = a.ranges[2 * int64_t(blockIdx.x)], n = a.ranges[2 * int64_t(blockIdx.x) + 1] - begin;
  join_pairs(a.values + begin, n, kPiece);
  if (threadIdx.x == 0) a.out[blockIdx.x] = a.values[begin];
}

}  // namespace

void tree_add(Parallel& where, float* sum, const float* other, int64_t n) {
  if (n == 0) return;
  PointwiseArgs a;
  a.numel = n, a.dims = 1, a.sizes[0] = n, a.outs = 1, a.ins = 2;
  a.out[0].data = a.in[0].data = sum;
  a.in[1].data = const_cast<float*>(other);
  a.out[0].strides[0] = a.in[0].strides[0] = a.in[1].strides[0] = 1;
  pointwise(where, PointwiseOp::kAdd, a);
}

void chunk_norms(Parallel& where, const float* x, int64_t n, double* out) {
  CudaQueue& queue = cuda_queue(where);
  const int64_t chunks = (n + kStateChunk - 1) / kStateChunk;
  launch(chunk_norms_grid, queue, blocks_for(queue, chunks * kLanes, kThreads), kThreads, x, n, chunks, out);
}

void tree_sums(Parallel& where, const TreeSumsArgs& a) {
  CudaQueue& queue = cuda_queue(where);
  launch(piece_sums, queue, a.count * kBlocksARange, kThreads, a);
  launch(range_sums, queue, a.count, kThreads, a);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
