// Resampling: a thread takes eight channels of one pixel, and sums in the order of the CPU's kernel.
#include "core/device/cuda/kernels/launch.h"
#include "core/device/cuda/kernels/place.h"
#include "core/kernels/resample_taps.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kThreads = 256;

// sum += weight * v
template <class T>
__device__ inline void add(Chunk<T>& sum, double weight, const Chunk<T>& v) {
  const T w = static_cast<T>(weight);
#pragma unroll
  for (int l = 0; l < kChunk; ++l) sum.v[l] = fused(v.v[l], w, sum.v[l]);
}

template <class T>
__global__ void __launch_bounds__(kThreads) resample_grid(const __grid_constant__ ResampleArgs a, int64_t items) {
  const ResampleAxis &h = a.height, &w = a.width;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < items; i += step) {
    const Place p = place_of(i, h.out, w.out, a.channels);
    const ResampleTaps ys = taps_of(h, p.y), xs = taps_of(w, p.x);
    Chunk<T> total{};
    for (int64_t y = ys.first; y < ys.end; ++y) {
      Chunk<T> row{};
      for (int64_t x = xs.first; x < xs.end; ++x) {
        const int64_t at = ((p.image * h.in + y) * w.in + x) * a.channels + p.c;
        add(row, xs.of(x), value_of<T>(load<T>(a.x, a.dtype, at, p.left), a.dtype));
      }
      add(total, ys.of(y), row);
    }
    store_chunk(a.y, a.dtype, ((p.image * h.out + p.y) * w.out + p.x) * a.channels + p.c, p.left, total);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    resample_backward_grid(const __grid_constant__ ResampleArgs a, int64_t items) {
  const ResampleAxis &h = a.height, &w = a.width;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < items; i += step) {
    const Place p = place_of(i, h.in, w.in, a.channels);
    const ResampleRange ys = outputs_of(h, p.y), xs = outputs_of(w, p.x);
    Chunk<T> total{};
    for (int64_t oy = ys.first; oy < ys.end; ++oy) {
      const double of_row = weight_of(h, oy, p.y);
      if (of_row == 0) continue;
      Chunk<T> row{};
      for (int64_t ox = xs.first; ox < xs.end; ++ox) {
        const double of_column = weight_of(w, ox, p.x);
        if (of_column == 0) continue;
        const int64_t at = ((p.image * h.out + oy) * w.out + ox) * a.channels + p.c;
        add(row, of_column, value_of<T>(load<T>(a.y, a.dtype, at, p.left), a.dtype));
      }
      add(total, of_row, row);
    }
    store_chunk(a.x, a.dtype, ((p.image * h.in + p.y) * w.in + p.x) * a.channels + p.c, p.left, total);
  }
}

}  // namespace

void resample(Parallel& where, const ResampleArgs& a) {
  CudaQueue& queue = cuda_queue(where);
  const int64_t items = a.images * a.height.out * a.width.out * chunks_of(a.channels);
  const int64_t blocks = blocks_for(queue, items, kThreads);
  if (a.dtype == DType::kFloat64) launch(resample_grid<double>, queue, blocks, kThreads, a, items);
  else launch(resample_grid<float>, queue, blocks, kThreads, a, items);
}

void resample_backward(Parallel& where, const ResampleArgs& a) {
  CudaQueue& queue = cuda_queue(where);
  const int64_t items = a.images * a.height.in * a.width.in * chunks_of(a.channels);
  const int64_t blocks = blocks_for(queue, items, kThreads);
  if (a.dtype == DType::kFloat64) launch(resample_backward_grid<double>, queue, blocks, kThreads, a, items);
  else launch(resample_backward_grid<float>, queue, blocks, kThreads, a, items);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
