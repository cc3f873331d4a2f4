// Max pooling: a thread takes eight channels of one place. The backward pass gathers: an image's place looks for the
// windows that chose it, in the order in which a CPU adds them.
#include "core/device/cuda/kernels/launch.h"
#include "core/device/cuda/kernels/place.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) pool_grid(const __grid_constant__ PoolArgs a, int64_t items) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < items; i += step) {
    const Place p = place_of(i, a.out_height, a.out_width, a.channels);
    const int64_t top = p.y * a.stride - a.padding, left = p.x * a.stride - a.padding;
    Chunk<T> best{};
    uint8_t where[kChunk] = {};
    bool first = true;
    for (int64_t w = 0; w < a.window * a.window; ++w) {
      const int64_t y = top + w / a.window, x = left + w % a.window;
      if (y < 0 || y >= a.height || x < 0 || x >= a.width) continue;
      const int64_t at = ((p.image * a.height + y) * a.width + x) * a.channels + p.c;
      const Chunk<T> v = value_of<T>(load<T>(a.x, a.dtype, at, p.left), a.dtype);
      if (first) {
        first = false;
        best = v;
#pragma unroll
        for (int l = 0; l < kChunk; ++l) where[l] = static_cast<uint8_t>(w);
        continue;
      }
#pragma unroll
      for (int l = 0; l < kChunk; ++l) {
        const bool stays = v.v[l] <= best.v[l];  // NaN wins
        best.v[l] = stays ? best.v[l] : v.v[l];
        where[l] = stays ? where[l] : static_cast<uint8_t>(w);
      }
    }
    const int64_t out = ((p.image * a.out_height + p.y) * a.out_width + p.x) * a.channels + p.c;
    store_chunk(a.y, a.dtype, out, p.left, best);
#pragma unroll
    for (int l = 0; l < kChunk; ++l)
      if (l < p.left) a.index[out + l] = where[l];
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) pool_backward_grid(const __grid_constant__ PoolArgs a, int64_t items) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < items; i += step) {
    const Place p = place_of(i, a.height, a.width, a.channels);
    Chunk<T> sum{};
    const int64_t y = p.y + a.padding, x = p.x + a.padding;  // in the padded image
    const int64_t first_y = y < a.window ? 0 : (y - a.window) / a.stride + 1;
    const int64_t first_x = x < a.window ? 0 : (x - a.window) / a.stride + 1;
    for (int64_t oy = first_y; oy < a.out_height && oy * a.stride <= y; ++oy)
      for (int64_t ox = first_x; ox < a.out_width && ox * a.stride <= x; ++ox) {
        const int64_t out = ((p.image * a.out_height + oy) * a.out_width + ox) * a.channels + p.c;
        const int mine = static_cast<int>((y - oy * a.stride) * a.window + x - ox * a.stride);
        const Chunk<T> g = value_of<T>(load<T>(a.y, a.dtype, out, p.left), a.dtype);
#pragma unroll
        for (int l = 0; l < kChunk; ++l) sum.v[l] += a.index[out + (l < p.left ? l : 0)] == mine ? g.v[l] : T(0);
      }
    const int64_t at = ((p.image * a.height + p.y) * a.width + p.x) * a.channels + p.c;
    store_chunk(a.x, a.dtype, at, p.left, sum);
  }
}

}  // namespace

void max_pool(Parallel& where, const PoolArgs& a) {
  CudaQueue& queue = cuda_queue(where);
  const int64_t items = a.images * a.out_height * a.out_width * chunks_of(a.channels);
  const int64_t blocks = blocks_for(queue, items, kThreads);
  if (a.dtype == DType::kFloat64) launch(pool_grid<double>, queue, blocks, kThreads, a, items);
  else launch(pool_grid<float>, queue, blocks, kThreads, a, items);
}

void max_pool_backward(Parallel& where, const PoolArgs& a) {
  CudaQueue& queue = cuda_queue(where);
  const int64_t items = a.images * a.height * a.width * chunks_of(a.channels);
  const int64_t blocks = blocks_for(queue, items, kThreads);
  if (a.dtype == DType::kFloat64) launch(pool_backward_grid<double>, queue, blocks, kThreads, a, items);
  else launch(pool_backward_grid<float>, queue, blocks, kThreads, a, items);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
