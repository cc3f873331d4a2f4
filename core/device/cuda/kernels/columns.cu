// Sums down columns. A block takes up to 256 columns and a part of the rows; where there are several parts, their sums
// are summed in a second pass. Parts, and so every order, follow from the shape alone.
#include "core/base/partition.h"
#include "core/device/cuda/kernels/chunk.h"
#include "core/device/cuda/kernels/launch.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kThreads = 256;

// Where a block's threads stand: `across` chunks of columns, and kThreads / across rows at once.
struct Partition {
  int across = 1;
  int64_t tiles = 1, parts = 1, rows_a_part = 0;
};

Partition partition_of(int64_t batch, int64_t rows, int64_t cols, bool whole) {
  Partition p;
  while (p.across < 32 && p.across * kChunk < cols) p.across *= 2;
  p.tiles = ceil_div(cols, int64_t(p.across) * kChunk);
  constexpr int64_t kBlocks = 512;  // enough for any GPU, and not many sums for the second pass
  const int64_t least_rows = int64_t(kThreads) / p.across * 4;
  const int64_t wanted = whole ? 1 : kBlocks / (batch * p.tiles), most = ceil_div(rows, least_rows);
  p.parts = wanted < most ? wanted : most;
  if (p.parts < 1) p.parts = 1;
  p.rows_a_part = ceil_div(rows, p.parts);
  return p;
}

// Where sums go: `parts` rows a batch in T, or the final place.
struct ColumnOut {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  bool accumulate = false;
};

template <class T>
struct SumTerm {
  static constexpr int kSums = 1;
  const void* in;
  DType dtype;
  struct Row {
    Loaded<T> x;
  };
  __device__ Row load_row(int64_t, int64_t at, int64_t, int left) const { return {load<T>(in, dtype, at, left)}; }
  __device__ void add(const Row& row, Chunk<T>* sums) const {
    const Chunk<T> x = value_of<T>(row.x, dtype);
#pragma unroll
    for (int l = 0; l < kChunk; ++l) sums[0].v[l] += x.v[l];
  }
};

template <class T>
struct NormTerm {
  static constexpr int kSums = 2;
  const void *g, *x;
  DType g_dtype, x_dtype;
  const T *mean, *rstd;
  struct Row {
    Loaded<T> g, x;
    T mean, rstd;
  };
  __device__ Row load_row(int64_t r, int64_t at, int64_t, int left) const {
    return {load<T>(g, g_dtype, at, left), load<T>(x, x_dtype, at, left), mean ? mean[r] : T(0), rstd[r]};
  }
  __device__ void add(const Row& row, Chunk<T>* sums) const {
    const Chunk<T> gs = value_of<T>(row.g, g_dtype), xs = value_of<T>(row.x, x_dtype);
#pragma unroll
    for (int l = 0; l < kChunk; ++l) {
      sums[0].v[l] += gs.v[l] * ((xs.v[l] - row.mean) * row.rstd);
      sums[1].v[l] += gs.v[l];
    }
  }
};

// Where per-channel values are [batch, channels] in T: those of the chunk at an element of it.
template <class T>
__device__ inline Chunk<T> of_channels(const T* values, int64_t c, int left) {
  Chunk<T> chunk;
#pragma unroll
  for (int l = 0; l < kChunk; ++l) chunk.v[l] = values[c + (l < left ? l : left - 1)];
  return chunk;
}

// Squared distances from the channels' means.
template <class T>
struct SquaresTerm {
  static constexpr int kSums = 1;
  const void* x;
  DType dtype;
  const T* mean;
  struct Row {
    Loaded<T> x;
    int64_t c;
    int left;
  };
  __device__ Row load_row(int64_t, int64_t at, int64_t c, int left) const {
    return {load<T>(x, dtype, at, left), c, left};
  }
  __device__ void add(const Row& row, Chunk<T>* sums) const {
    const Chunk<T> xs = value_of<T>(row.x, dtype), means = of_channels(mean, row.c, row.left);
#pragma unroll
    for (int l = 0; l < kChunk; ++l) sums[0].v[l] += (xs.v[l] - means.v[l]) * (xs.v[l] - means.v[l]);
  }
};

template <class T>
struct ChannelGradientTerm {
  static constexpr int kSums = 2;
  const void *g, *x;
  DType g_dtype, x_dtype;
  const T *mean, *rstd, *scale, *shift;
  struct Row {
    Loaded<T> g, x;
    int64_t c;
    int left;
  };
  __device__ Row load_row(int64_t, int64_t at, int64_t c, int left) const {
    return {load<T>(g, g_dtype, at, left), load<T>(x, x_dtype, at, left), c, left};
  }
  __device__ void add(const Row& row, Chunk<T>* sums) const {
    Chunk<T> gs = value_of<T>(row.g, g_dtype);
    const Chunk<T> xs = value_of<T>(row.x, x_dtype), means = of_channels(mean, row.c, row.left),
                   rstds = of_channels(rstd, row.c, row.left);
    if (scale) {
      const Chunk<T> scales = of_channels(scale, row.c, row.left), shifts = of_channels(shift, row.c, row.left);
#pragma unroll
      for (int l = 0; l < kChunk; ++l)
        if (!(fused(xs.v[l], scales.v[l], shifts.v[l]) > T(0))) gs.v[l] = T(0);
    }
#pragma unroll
    for (int l = 0; l < kChunk; ++l) {
      sums[0].v[l] += gs.v[l];
      sums[1].v[l] += gs.v[l] * ((xs.v[l] - means.v[l]) * rstds.v[l]);
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) divide_grid(T* values, int64_t n, T by) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) values[i] = values[i] / by;
}

template <int N>
struct ColumnOuts {
  ColumnOut to[N];
};

template <class T, class Term>
__global__ void __launch_bounds__(kThreads)
    column_grid(const __grid_constant__ Term term, int64_t rows, int64_t cols, const __grid_constant__ Partition p,
                const __grid_constant__ ColumnOuts<Term::kSums> outs) {
  __shared__ T shared[Term::kSums][kChunk][kThreads];
  const int x = static_cast<int>(threadIdx.x) % p.across, y = static_cast<int>(threadIdx.x) / p.across;
  const int lines = kThreads / p.across;
  const int64_t tile = blockIdx.x % p.tiles, part = blockIdx.x / p.tiles % p.parts,
                batch = blockIdx.x / (p.tiles * p.parts);
  const int64_t c0 = (tile * p.across + x) * kChunk;
  const int left = cols - c0 < kChunk ? static_cast<int>(cols - c0) : kChunk;
  const int64_t end = (part + 1) * p.rows_a_part < rows ? (part + 1) * p.rows_a_part : rows;

  Chunk<T> sums[Term::kSums] = {};
  if (left > 0) {
    constexpr int kAtOnce = 4;  // loads under way
    for (int64_t r0 = part * p.rows_a_part + y; r0 < end; r0 += kAtOnce * lines) {
      typename Term::Row row[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (const int64_t r = r0 + k * lines; r < end)
          row[k] = term.load_row(r, (batch * rows + r) * cols + c0, batch * cols + c0, left);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (r0 + k * lines < end) term.add(row[k], sums);
    }
  }
  // A tree over the block's lines.
#pragma unroll
  for (int s = 0; s < Term::kSums; ++s)
#pragma unroll
    for (int l = 0; l < kChunk; ++l) shared[s][l][threadIdx.x] = sums[s].v[l];
  for (int half = lines / 2; half > 0; half /= 2) {
    __syncthreads();
    if (y < half)
#pragma unroll
      for (int s = 0; s < Term::kSums; ++s)
#pragma unroll
        for (int l = 0; l < kChunk; ++l) shared[s][l][threadIdx.x] += shared[s][l][threadIdx.x + half * p.across];
  }
  if (y > 0 || left <= 0) return;
  const int64_t at = (batch * p.parts + part) * cols + c0;
#pragma unroll
  for (int s = 0; s < Term::kSums; ++s) {
    const ColumnOut& out = outs.to[s];
    if (!out.data) continue;
    Chunk<T> total;
#pragma unroll
    for (int l = 0; l < kChunk; ++l) total.v[l] = shared[s][l][threadIdx.x];
    if (out.accumulate) {
      const Chunk<T> before = value_of<T>(load<T>(out.data, out.dtype, at, left), out.dtype);
#pragma unroll
      for (int l = 0; l < kChunk; ++l) total.v[l] = before.v[l] + total.v[l];
    }
    store_chunk(out.data, out.dtype, at, left, total);
  }
}

template <class T, class Term>
void sum_columns(CudaQueue& queue, const Term& term, int64_t batch, int64_t rows, int64_t cols,
                 const ColumnOuts<Term::kSums>& outs) {
  if (batch * cols == 0) return;
  const Partition p = partition_of(batch, rows, cols, false);
  const int64_t blocks = p.tiles * p.parts * batch;
  if (p.parts == 1) return launch(column_grid<T, Term>, queue, blocks, kThreads, term, rows, cols, p, outs);
  const int64_t size = batch * p.parts * cols;
  T* const scratch = static_cast<T*>(queue.scratch_memory(0, Term::kSums * size * static_cast<int64_t>(sizeof(T))));
  ColumnOuts<Term::kSums> parts;
  for (int s = 0; s < Term::kSums; ++s)
    if (outs.to[s].data) parts.to[s] = {scratch + s * size, kTypeOf<T>, false};
  launch(column_grid<T, Term>, queue, blocks, kThreads, term, rows, cols, p, parts);
  const Partition whole = partition_of(batch, p.parts, cols, true);
  for (int s = 0; s < Term::kSums; ++s)
    if (outs.to[s].data)
      launch(column_grid<T, SumTerm<T>>, queue, whole.tiles * batch, kThreads, SumTerm<T>{parts.to[s].data, kTypeOf<T>},
             p.parts, cols, whole, ColumnOuts<1>{{outs.to[s]}});
}

template <class T>
void column_sum_in(CudaQueue& queue, const ColumnArgs& a) {
  sum_columns<T>(queue, SumTerm<T>{a.in, a.in_dtype}, a.batch, a.rows, a.cols, {{{a.out, a.out_dtype, a.accumulate}}});
}

template <class T>
void norm_columns_in(CudaQueue& queue, const NormColumnsArgs& a) {
  const NormTerm<T> term{a.g, a.x, a.g_dtype, a.x_dtype, static_cast<const T*>(a.mean), static_cast<const T*>(a.rstd)};
  sum_columns<T>(queue, term, 1, a.rows, a.cols,
                 {{{a.dweight, a.dweight_dtype, a.accumulate_weight}, {a.dbias, a.dbias_dtype, a.accumulate_bias}}});
}

template <class T>
void channel_sums_in(CudaQueue& queue, const ChannelSumsArgs& a) {
  const ColumnOut out0{a.out0, kTypeOf<T>, false}, out1{a.out1, kTypeOf<T>, false};
  if (a.g) {
    const ChannelGradientTerm<T> term{a.g,
                                      a.x,
                                      a.g_dtype,
                                      a.x_dtype,
                                      static_cast<const T*>(a.mean),
                                      static_cast<const T*>(a.rstd),
                                      static_cast<const T*>(a.scale),
                                      static_cast<const T*>(a.shift)};
    return sum_columns<T>(queue, term, a.batch, a.rows, a.channels, {{out0, out1}});
  }
  T* const mean = static_cast<T*>(a.out0);
  const int64_t sums = a.batch * a.channels;
  sum_columns<T>(queue, SumTerm<T>{a.x, a.x_dtype}, a.batch, a.rows, a.channels, {{out0}});
  launch(divide_grid<T>, queue, blocks_for(queue, sums, kThreads), kThreads, mean, sums, static_cast<T>(a.rows));
  sum_columns<T>(queue, SquaresTerm<T>{a.x, a.x_dtype, mean}, a.batch, a.rows, a.channels, {{out1}});
}

}  // namespace

void channel_sums(Parallel& where, const ChannelSumsArgs& a) {
  if (fits_chunk(a.x_dtype)) channel_sums_in<float>(cuda_queue(where), a);
  else channel_sums_in<double>(cuda_queue(where), a);
}

void column_sum(Parallel& where, const ColumnArgs& a) {
  if (fits_chunk(a.in_dtype)) column_sum_in<float>(cuda_queue(where), a);
  else column_sum_in<double>(cuda_queue(where), a);
}

void norm_columns(Parallel& where, const NormColumnsArgs& a) {
  if (fits_chunk(a.x_dtype)) norm_columns_in<float>(cuda_queue(where), a);
  else norm_columns_in<double>(cuda_queue(where), a);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
