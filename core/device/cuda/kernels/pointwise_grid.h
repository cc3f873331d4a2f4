// for_each and for_each_of on a grid of CUDA threads. No result depends on the grid: an element is one thread's alone.
// Stateless.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>

#include "core/device/cuda/kernels/chunk.h"
#include "core/device/cuda/kernels/launch.h"
#include "core/kernels/apply.h"

namespace lockstep::inline LOCKSTEP_ISA {

constexpr int kPointwiseThreads = 256;

// Element by element, with any strides and types; from `first` on.
template <class F, class T>
__device__ void pointwise_elements(const PointwiseArgs& a, const F& f, uint32_t first) {
  const uint32_t step = gridDim.x * blockDim.x, end = static_cast<uint32_t>(a.numel);
  for (uint32_t i = first + blockIdx.x * blockDim.x + threadIdx.x; i < end; i += step) {
    int64_t in_at[kMaxIns] = {}, out_at[kMaxOuts] = {};
    uint32_t rest = i;
    for (int d = a.dims - 1; d >= 0; --d) {
      const uint32_t size = static_cast<uint32_t>(a.sizes[d]), above = d > 0 ? rest / size : 0;
      const int64_t c = rest - above * size;
      rest = above;
      for (int j = 0; j < F::kIns; ++j) in_at[j] += c * a.in[j].strides[d];
      for (int j = 0; j < F::kOuts; ++j) out_at[j] += c * a.out[j].strides[d];
    }
    T v[F::kIns > 0 ? F::kIns : 1];
    for (int j = 0; j < F::kIns; ++j) v[j] = load_element<T>(a.in[j].data, a.in[j].dtype, in_at[j]);
    const auto r = call<F, T>(f, v);
    for (int j = 0; j < F::kOuts; ++j) store_element<T>(a.out[j].data, a.out[j].dtype, out_at[j], pick<F::kOuts>(r, j));
  }
}

template <class F>
__global__ void __launch_bounds__(kPointwiseThreads) pointwise_wide(const __grid_constant__ PointwiseArgs a) {
  pointwise_elements<F, double>(a, F(a), 0);
}

// One functor over the elements of a chunk.
template <class F>
__device__ void pass_chunk(const F& f, const Chunk<float>* in, Chunk<float>* out) {
#pragma unroll
  for (int l = 0; l < kChunk; ++l) {
    float v[F::kIns > 0 ? F::kIns : 1];
#pragma unroll
    for (int j = 0; j < F::kIns; ++j) v[j] = in[j].v[l];
    const auto r = call<F, float>(f, v);
#pragma unroll
    for (int j = 0; j < F::kOuts; ++j) out[j].v[l] = pick<F::kOuts>(r, j);
  }
}

// `chunks` whole chunks, `per_line` to a line of the last dimension, and what is left of a single line.
template <class F>
__global__ void __launch_bounds__(kPointwiseThreads)
    pointwise_grid(const __grid_constant__ PointwiseArgs a, uint32_t chunks, uint32_t per_line) {
  const F f(a);
  const int last = a.dims - 1;
  for (uint32_t q = blockIdx.x * blockDim.x + threadIdx.x; q < chunks; q += gridDim.x * blockDim.x) {
    uint32_t line = last > 0 ? q / per_line : 0;
    const int64_t column = static_cast<int64_t>(q - line * per_line) * kChunk;
    int64_t in_at[kMaxIns], out_at[kMaxOuts];
    for (int j = 0; j < F::kIns; ++j) in_at[j] = column * a.in[j].strides[last];
    for (int j = 0; j < F::kOuts; ++j) out_at[j] = column;
    for (int d = last - 1; d >= 0; --d) {
      const uint32_t size = static_cast<uint32_t>(a.sizes[d]), above = d > 0 ? line / size : 0;
      const int64_t c = line - above * size;
      line = above;
      for (int j = 0; j < F::kIns; ++j) in_at[j] += c * a.in[j].strides[d];
      for (int j = 0; j < F::kOuts; ++j) out_at[j] += c * a.out[j].strides[d];
    }
    Raw raw[F::kIns > 0 ? F::kIns : 1];
#pragma unroll
    for (int j = 0; j < F::kIns; ++j)
      raw[j] = a.in[j].strides[last] == 0 ? load_same(a.in[j].data, a.in[j].dtype, in_at[j])
                                          : load_whole(a.in[j].data, a.in[j].dtype, in_at[j]);
    Chunk<float> in[F::kIns > 0 ? F::kIns : 1], out[F::kOuts];
#pragma unroll
    for (int j = 0; j < F::kIns; ++j) in[j] = chunk_of(raw[j], a.in[j].dtype);
    pass_chunk(f, in, out);
#pragma unroll
    for (int j = 0; j < F::kOuts; ++j) store_whole(a.out[j].data, a.out[j].dtype, out_at[j], out[j]);
  }
  pointwise_elements<F, float>(a, f, chunks * kChunk);
}

// Whether a line of the last dimension falls into whole chunks that lie in memory as such; a single line may leave a
// rest.
inline bool in_chunks(const PointwiseArgs& a) {
  const int last = a.dims - 1;
  if (last < 0 || (last > 0 && a.sizes[last] % kChunk != 0)) return false;
  auto whole = [&](const Operand& o, bool may_repeat) {
    if (!fits_chunk(o.dtype)) return false;
    if (may_repeat && o.strides[last] == 0) return true;
    bool holds = o.strides[last] == 1 && is_aligned(o.data);
    for (int d = 0; d < last; ++d) holds &= o.strides[d] * size_of(o.dtype) % 16 == 0;
    return holds;
  };
  bool holds = true;
  for (int j = 0; j < a.ins; ++j) holds &= whole(a.in[j], true);
  for (int j = 0; j < a.outs; ++j) holds &= whole(a.out[j], false);
  return holds;
}

// The kernels count elements in 32 bits; more of them are several grids.
constexpr int64_t kMostElements = int64_t(1) << 30;

// The outermost dimension in two.
template <class Run>
inline void halve(PointwiseArgs a, Run run) {
  int d = 0;
  while (a.sizes[d] == 1) ++d;
  const int64_t size = a.sizes[d];
  int64_t half = size / 2;
  if (half > 4096) half -= half % 4096;  // stays aligned
  a.numel = a.numel / size * half;
  a.sizes[d] = half;
  run(a);
  a.numel = a.numel / half * (size - half);
  a.sizes[d] = size - half;
  auto skip = [&](Operand& o) { o.data = static_cast<char*>(o.data) + half * o.strides[d] * size_of(o.dtype); };
  for (int j = 0; j < a.ins; ++j) skip(a.in[j]);
  for (int j = 0; j < a.outs; ++j) skip(a.out[j]);
  run(a);
}

template <class F>
void for_each(Parallel& where, const PointwiseArgs& a) {
  if (a.numel > kMostElements) return halve(a, [&](const PointwiseArgs& half) { for_each<F>(where, half); });
  CudaQueue& queue = cuda_queue(where);
  if (any_wide(a)) {
    launch(pointwise_wide<F>, queue, blocks_for(queue, a.numel, kPointwiseThreads), kPointwiseThreads, a);
    return;
  }
  const uint32_t chunks = in_chunks(a) ? static_cast<uint32_t>(a.numel / kChunk) : 0;
  const uint32_t per_line = a.dims > 0 ? static_cast<uint32_t>(chunks_of(a.sizes[a.dims - 1])) : 1;
  const int64_t items = chunks > 0 ? chunks : a.numel;
  launch(pointwise_grid<F>, queue, blocks_for(queue, items, kPointwiseThreads), kPointwiseThreads, a, chunks, per_line);
}

// Passes of one functor over several stretches of memory, in one launch. As many as a kernel's arguments hold.
constexpr int kMostTogether = 24, kMostTogetherOperands = 4;

struct Together {
  struct Part {
    void *in[kMostTogetherOperands], *out[kMostTogetherOperands];
    DType in_type[kMostTogetherOperands], out_type[kMostTogetherOperands];
    uint32_t numel;
    decltype(PointwiseArgs::scalars) scalars;
  };
  int count = 0;
  uint32_t first_block[kMostTogether + 1] = {};  // of each part, and behind the last
  const float* control = nullptr;
  Part parts[kMostTogether];
};
static_assert(sizeof(Together) <= 4096, "a kernel's arguments");

template <class F>
__global__ void __launch_bounds__(kPointwiseThreads) pointwise_together(const __grid_constant__ Together all) {
  int k = 0;
  while (k + 1 < all.count && blockIdx.x >= all.first_block[k + 1]) ++k;
  const Together::Part& part = all.parts[k];
  PointwiseArgs args;
  for (size_t s = 0; s < std::size(args.scalars); ++s) args.scalars[s] = part.scalars[s];
  args.control = all.control;
  const F f(args);
  const uint32_t block = blockIdx.x - all.first_block[k], blocks = all.first_block[k + 1] - all.first_block[k],
                 thread = block * blockDim.x + threadIdx.x, threads = blocks * blockDim.x, chunks = part.numel / kChunk;
  for (uint32_t q = thread; q < chunks; q += threads) {
    const int64_t at = static_cast<int64_t>(q) * kChunk;
    Raw raw[F::kIns];
#pragma unroll
    for (int j = 0; j < F::kIns; ++j) raw[j] = load_whole(part.in[j], part.in_type[j], at);
    Chunk<float> in[F::kIns], out[F::kOuts];
#pragma unroll
    for (int j = 0; j < F::kIns; ++j) in[j] = chunk_of(raw[j], part.in_type[j]);
    pass_chunk(f, in, out);
#pragma unroll
    for (int j = 0; j < F::kOuts; ++j) store_whole(part.out[j], part.out_type[j], at, out[j]);
  }
  for (uint32_t i = chunks * kChunk + thread; i < part.numel; i += threads) {
    float v[F::kIns];
    for (int j = 0; j < F::kIns; ++j) v[j] = load_element<float>(part.in[j], part.in_type[j], i);
    const auto r = call<F, float>(f, v);
    for (int j = 0; j < F::kOuts; ++j) store_element<float>(part.out[j], part.out_type[j], i, pick<F::kOuts>(r, j));
  }
}

// Whether every operand is one stretch of memory in whole chunks, but for its end.
inline bool goes_together(const PointwiseArgs& a) {
  if (a.dims != 1 || a.numel == 0 || a.numel > kMostElements || any_wide(a) || !in_chunks(a)) return false;
  for (int j = 0; j < a.ins; ++j)
    if (a.in[j].strides[0] != 1) return false;
  return true;
}

template <class F>
void for_each_of(Parallel& where, std::span<const PointwiseArgs> parts) {
  CudaQueue& queue = cuda_queue(where);
  const auto run = [&](std::span<const PointwiseArgs> some) {
    if (some.size() == 1) return for_each<F>(where, some[0]);
    int64_t items = 0;
    for (const PointwiseArgs& a : some) items += chunks_of(a.numel);
    // As many blocks as a pass over all of it has, shared out by size; each part has one at least.
    const int64_t blocks = blocks_for(queue, items, kPointwiseThreads), of_block = (items + blocks - 1) / blocks;
    Together all;
    for (const PointwiseArgs& a : some) {
      Together::Part& part = all.parts[all.count];
      for (int j = 0; j < F::kIns; ++j) part.in[j] = a.in[j].data, part.in_type[j] = a.in[j].dtype;
      for (int j = 0; j < F::kOuts; ++j) part.out[j] = a.out[j].data, part.out_type[j] = a.out[j].dtype;
      std::copy(std::begin(a.scalars), std::end(a.scalars), part.scalars);
      part.numel = static_cast<uint32_t>(a.numel);
      all.control = a.control;
      all.first_block[all.count + 1] =
          all.first_block[all.count] + static_cast<uint32_t>((chunks_of(a.numel) + of_block - 1) / of_block);
      ++all.count;
    }
    launch(pointwise_together<F>, queue, all.first_block[all.count], kPointwiseThreads, all);
  };
  static_assert(F::kIns <= kMostTogetherOperands && F::kOuts <= kMostTogetherOperands);
  for (size_t i = 0, end; i < parts.size(); i = end) {
    end = i + 1;
    while (goes_together(parts[i]) && end < parts.size() && end - i < kMostTogether && goes_together(parts[end]) &&
           parts[end].control == parts[i].control)
      ++end;
    run(parts.subspan(i, end - i));
  }
}

}  // namespace lockstep::inline LOCKSTEP_ISA
