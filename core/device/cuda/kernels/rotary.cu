// Rotary position embedding: a thread takes one pair of elements of a position, turned or not, in all heads of a
// sample.
#include "core/device/cuda/kernels/launch.h"
#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) rotary_grid(const __grid_constant__ RotaryArgs a, int64_t items) {
  const int64_t half = a.dim / 2, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t item = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; item < items; item += step) {
    const int64_t i = item % half, row = item / half;  // row: of [batch, time]
    if (i >= a.pairs) {
      for (int64_t h = 0; h < a.heads; ++h)
        for (int64_t at = (row * a.heads + h) * a.dim + 2 * i, end = at + 2; at < end; ++at)
          store_element<T>(a.y, a.dtype, at, load_element<T>(a.x, a.dtype, at));
      continue;
    }
    const SinCos turn = sin_cos_of(static_cast<double>(a.position(row / a.time, row % a.time)) * a.frequencies[i]);
    const T sine = static_cast<T>(a.back ? -turn.sin : turn.sin), cosine = static_cast<T>(turn.cos);
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t low = (row * a.heads + h) * a.dim + i, high = low + a.pairs;
      const T x = load_element<T>(a.x, a.dtype, low), y = load_element<T>(a.x, a.dtype, high);
      store_element<T>(a.y, a.dtype, low, x * cosine - y * sine);
      store_element<T>(a.y, a.dtype, high, y * cosine + x * sine);
    }
  }
}

}  // namespace

void rotary(Parallel& where, const RotaryArgs& a) {
  CudaQueue& queue = cuda_queue(where);
  const int64_t items = a.batch * a.time * (a.dim / 2), blocks = blocks_for(queue, items, kThreads);
  if (a.dtype == DType::kFloat64) launch(rotary_grid<double>, queue, blocks, kThreads, a, items);
  else launch(rotary_grid<float>, queue, blocks, kThreads, a, items);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
