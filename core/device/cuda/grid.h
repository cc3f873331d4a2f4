// for_each and for_each_row on a grid of CUDA threads. No result depends on the grid: a pointwise element is one
// thread's alone, and the order of a row's sum follows from its length. Stateless.
#pragma once

#include <span>

#include "core/device/cuda/chunk.h"
#include "core/device/cuda/launch.h"
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
    double scalars[6];
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
  PointwiseArgs scalars;
  for (int s = 0; s < 6; ++s) scalars.scalars[s] = part.scalars[s];
  scalars.control = all.control;
  const F f(scalars);
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
  if (a.dims != 1 || a.numel > kMostElements || any_wide(a) || !in_chunks(a)) return false;
  for (int j = 0; j < a.ins; ++j)
    if (a.in[j].strides[0] != 1) return false;
  return a.scalars[6] == 0 && a.scalars[7] == 0;
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
      for (int s = 0; s < 6; ++s) part.scalars[s] = a.scalars[s];
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

// How many parts of 16 bytes a chunk takes of each of these operands, kept near: rows that are read keep their type.
HD inline int parts_of(DType t) { return is_half(t) ? 1 : 2; }
HD inline int near_parts(const RowArgs& a, unsigned operands) {
  int parts = 0;
  for (int j = 0; j < kMaxRowIns; ++j)
    if (operands & operand_bit(RowIn(j))) parts += parts_of(a.in[j].dtype);
  for (int j = 0; j < kMaxRowOuts; ++j)
    if (operands & operand_bit(RowOut(j))) parts += 2;
  return parts;
}

// What a row functor sees: its row, and a team of threads that pass over it: a warp, or a block where rows are long.
// Chunks of 8 elements are dealt out in turn, so that a thread meets the same elements in every pass; they are in
// registers while the functor deals with them. Rows of kKept stay in shared memory, those that are read as they are
// stored and those that are written in T, where each thread reads what it has put there itself: no barrier but those of
// the sums, which order what any thread reads before and writes after.
template <class T, bool kWarp, bool kWhole, unsigned kKept, unsigned kPassed>
class GridRow {
  static_assert(kKept == 0 || sizeof(T) == sizeof(float));

 public:
  __device__ GridRow(const RowArgs& a, int64_t r, uint4* near, double (*partial)[32], int& turn)
      : args(a), row(r), near_(near), partial_(partial), turn_(turn) {}

  const RowArgs& args;
  const int64_t row;

  struct In {
    GridRow& row;
    int j;
    __device__ T operator[](int64_t i) const { return row.in_[j].v[i - row.base_]; }
  };
  struct Element {
    GridRow& row;
    int j;
    int64_t i;
    __device__ void operator=(T value) const {
      row.out_[j].v[i - row.base_] = value;
      row.written_[j] = true;
    }
    __device__ operator T() const { return row.out_[j].v[i - row.base_]; }
  };
  struct Out {
    GridRow& row;
    int j;
    __device__ Element operator[](int64_t i) const { return {row, j, i}; }
  };

  __device__ bool has(RowIn j) const { return of(j).data != nullptr; }
  __device__ In in(RowIn j) {
    in_open_[static_cast<int>(j)] = true;
    if (is_kept(operand_bit(j))) keep(j);
    return {*this, static_cast<int>(j)};
  }
  __device__ Out out(RowOut j) {
    out_open_[static_cast<int>(j)] = true;
    return {*this, static_cast<int>(j)};
  }
  // An index from data that lies outside is not followed: check_indices has it reported when the host next waits.
  __device__ T in_value(RowIn j, int64_t i = 0) const {
    return i < 0 || i >= args.cols ? T(0) : load_element<T>(of(j).data, of(j).dtype, begin_of_row(j) + i);
  }
  __device__ T in_at(RowIn j, int64_t i) const {
    return i < 0 || i >= of(j).row_stride ? T(0) : load_element<T>(of(j).data, of(j).dtype, begin_of_row(j) + i);
  }
  __device__ int64_t in_integer(RowIn j, int64_t i = 0) const {
    const RowOperand& o = of(j);
    return o.dtype == DType::kInt64 ? static_cast<const int64_t*>(o.data)[begin_of_row(j) + i]
                                    : static_cast<const int32_t*>(o.data)[begin_of_row(j) + i];
  }
  __device__ void settle(RowOut j) {
    if constexpr (kKept != 0) {
      if (!is_kept(operand_bit(j))) return;  // went out as it was written
      const RowOperand& o = of(j);
      for (int q = thread(); q < chunks(); q += threads()) {
        const Chunk<T> c = out_from_near(j, q);
        store_some(o, begin_of_row(j) + begin_of(q), left_at(q), c);
        if (is_half(o.dtype)) out_to_near(j, q, chunk_of(Raw{halves_of(c, o.dtype), uint4{}}, o.dtype));
      }
      settled_[static_cast<int>(j)] = true;
    }
  }
  __device__ void out_value(RowOut j, T v) {
    if (thread() == 0) store_element<T>(of(j).data, of(j).dtype, begin_of_row(j), v);
  }
  __device__ void out_wide(RowOut j, double v) {
    if (thread() == 0) static_cast<double*>(of(j).data)[begin_of_row(j)] = v;
  }
  __device__ void out_index(RowOut j, int64_t i, int32_t v) {
    if (thread() == 0) static_cast<int32_t*>(of(j).data)[begin_of_row(j) + i] = v;
  }
  __device__ void out_at(RowOut j, int64_t i, T v) {
    store_element<T>(of(j).data, of(j).dtype, begin_of_row(j) + i, v);
  }
  __device__ void add_at(RowOut j, int64_t i, T v) {
    if (i < 0 || i >= of(j).row_stride) return;
    out_at(j, i, load_element<T>(of(j).data, of(j).dtype, begin_of_row(j) + i) + v);
  }

  template <class G>
  __device__ void each(int64_t, G g) {
    for (int q = thread(); q < chunks(); q += threads()) {
      const int left = open(q);
#pragma unroll
      for (int l = 0; l < kChunk; ++l) g(base_ + l);
      close(q, left);
    }
  }
  // By one thread: the rows of a matrix keep a GPU busy, a single long one does not.
  template <class G>
  __device__ void in_order(int64_t n, G g) {
    if (thread() != 0) return;
    for (int64_t i = 0; i < n; ++i) g(i);
  }
  template <class G>
  __device__ void each_four(int64_t, G g) {
    for (int q = thread(); q < chunks(); q += threads()) {
      const int left = open(q);
#pragma unroll
      for (int l = 0; l < kChunk; l += 4) g(base_ + l);
      close(q, left);
    }
  }
  template <class G>
  __device__ auto sum(int64_t, G g) {
    using S = decltype(g(int64_t(0)));
    return fold<S>(S(0), g, [](S a, S b) { return a + b; });
  }
  template <class G>
  __device__ T max(int64_t, G g) {
    return fold<T>(T(-INFINITY), g, [](T a, T b) { return b > a ? b : a; });
  }

  // After the functor: rows kept near go out, but those that have.
  __device__ void flush() {
#pragma unroll
    for (int j = 0; j < kMaxRowOuts; ++j)
      if (is_kept(operand_bit(RowOut(j))) && !settled_[j])
        for (int q = thread(); q < chunks(); q += threads())
          store_some(args.out[j], begin_of_row(RowOut(j)) + begin_of(q), left_at(q), out_from_near(RowOut(j), q));
  }

 private:
  static constexpr __device__ bool is_kept(unsigned operand) { return (kKept & operand) != 0; }
  static constexpr __device__ bool is_passed(unsigned operand) { return (kPassed & operand) != 0; }
  __device__ int thread() const { return static_cast<int>(kWarp ? threadIdx.x % 32 : threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(kWarp ? 32 : blockDim.x); }
  __device__ int chunks() const { return static_cast<int>(chunks_of(args.cols)); }
  __device__ int left_at(int q) const {
    if constexpr (kWhole) return kChunk;
    const int64_t left = args.cols - begin_of(q);
    return left < kChunk ? static_cast<int>(left) : kChunk;
  }
  __device__ static int64_t begin_of(int q) { return int64_t(q) * kChunk; }
  __device__ const RowOperand& of(RowIn j) const { return args.in[static_cast<int>(j)]; }
  __device__ const RowOperand& of(RowOut j) const { return args.out[static_cast<int>(j)]; }
  template <class J>
  __device__ int64_t begin_of_row(J j) const {
    return row * of(j).row_stride;
  }

  // A kept chunk lies in parts of 16 bytes, each beside its neighbours', so that threads meet no banks twice.
  __device__ uint4* near(unsigned operand, int q) const {
    return near_ + near_parts(args, kKept & (operand - 1)) * chunks() + q;
  }
  __device__ Raw raw_near(unsigned operand, int q, int parts) const {
    const uint4* p = near(operand, q);
    return {p[0], parts == 2 ? p[chunks()] : uint4{}};
  }
  __device__ void raw_to_near(unsigned operand, int q, int parts, const Raw& raw) const {
    uint4* p = near(operand, q);
    p[0] = raw.a;
    if (parts == 2) p[chunks()] = raw.b;
  }
  __device__ Chunk<T> in_from_near(RowIn j, int q) const {
    const DType type = of(j).dtype;
    if constexpr (kKept != 0) return chunk_of(raw_near(operand_bit(j), q, parts_of(type)), type);
    return {};
  }
  __device__ Chunk<T> out_from_near(RowOut j, int q) const {
    if constexpr (kKept != 0) return chunk_of(raw_near(operand_bit(j), q, 2), DType::kFloat32);
    return {};
  }
  __device__ void out_to_near(RowOut j, int q, const Chunk<T>& c) const {
    if constexpr (kKept != 0) {
      const float* v = c.v;
      raw_to_near(operand_bit(j), q, 2,
                  {make_uint4(bits_of(v[0]), bits_of(v[1]), bits_of(v[2]), bits_of(v[3])),
                   make_uint4(bits_of(v[4]), bits_of(v[5]), bits_of(v[6]), bits_of(v[7]))});
    }
  }
  __device__ void keep(RowIn j) {
    constexpr int kAtOnce = kWarp && !kWhole ? 4 : 2;  // loads under way
    for (int q0 = thread(); q0 < chunks(); q0 += kAtOnce * threads()) {
      Raw loaded[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (const int q = q0 + k * threads(); q < chunks())
          loaded[k] = load_some(of(j), begin_of_row(j) + begin_of(q), left_at(q));
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (const int q = q0 + k * threads(); q < chunks())
          raw_to_near(operand_bit(j), q, parts_of(of(j).dtype), loaded[k]);
    }
  }

  static __device__ Raw load_some(const RowOperand& o, int64_t at, int left) {
    if constexpr (kWhole) return load_whole(o.data, o.dtype, at);
    else return load_raw(o.data, o.dtype, at, left);
  }
  static __device__ Loaded<T> load_passed(const RowOperand& o, int64_t at, int left) {
    if constexpr (kWhole) return {load_whole(o.data, o.dtype, at)};
    else return load<T>(o.data, o.dtype, at, left);
  }
  static __device__ void store_some(const RowOperand& o, int64_t at, int left, const Chunk<T>& c) {
    if constexpr (kWhole) store_whole(o.data, o.dtype, at, c);
    else store_chunk(o.data, o.dtype, at, left, c);
  }

  // The chunk of every open operand. Those that a pass does not read, the compiler leaves out.
  __device__ int open(int q) {
    base_ = begin_of(q);
    const int left = left_at(q);
    Loaded<T> ins[kMaxRowIns], outs[kMaxRowOuts] = {};
#pragma unroll
    for (int j = 0; j < kMaxRowIns; ++j)
      if (is_passed(operand_bit(RowIn(j))) && in_open_[j])
        ins[j] = load_passed(args.in[j], begin_of_row(RowIn(j)) + base_, left);
#pragma unroll
    for (int j = 0; j < kMaxRowOuts; ++j)
      if (is_passed(operand_bit(RowOut(j))) && out_open_[j])
        outs[j] = load_passed(args.out[j], begin_of_row(RowOut(j)) + base_, left);
#pragma unroll
    for (int j = 0; j < kMaxRowIns; ++j) {
      if (is_passed(operand_bit(RowIn(j))) && in_open_[j]) in_[j] = value_of<T>(ins[j], args.in[j].dtype);
      if (is_kept(operand_bit(RowIn(j))) && in_open_[j]) in_[j] = in_from_near(RowIn(j), q);
    }
#pragma unroll
    for (int j = 0; j < kMaxRowOuts; ++j) {
      if (is_passed(operand_bit(RowOut(j))) && out_open_[j]) out_[j] = value_of<T>(outs[j], args.out[j].dtype);
      if (is_kept(operand_bit(RowOut(j))) && out_open_[j]) out_[j] = out_from_near(RowOut(j), q);
      written_[j] = false;
    }
    return left;
  }
  __device__ void close(int q, int left) {
#pragma unroll
    for (int j = 0; j < kMaxRowOuts; ++j) {
      if (is_kept(operand_bit(RowOut(j))) && written_[j]) out_to_near(RowOut(j), q, out_[j]);
      if (is_passed(operand_bit(RowOut(j))) && written_[j])
        store_some(args.out[j], begin_of_row(RowOut(j)) + base_, left, out_[j]);
    }
  }

  // Elements of a chunk one after another, a thread's chunks one after another, then a tree over the threads.
  template <class S, class G, class Join>
  __device__ S fold(S start, G g, Join join) {
    S mine = start;
    for (int q = thread(); q < chunks(); q += threads()) {
      const int left = open(q);
#pragma unroll
      for (int l = 0; l < kChunk; ++l) {
        const S value = g(base_ + l);
        mine = l < left ? join(mine, value) : mine;
      }
      close(q, left);
    }
#pragma unroll
    for (int half = 16; half > 0; half /= 2) mine = join(mine, __shfl_xor_sync(0xFFFFFFFFu, mine, half));
    if constexpr (!kWarp) {
      // Two sets of partial sums in turn: one barrier is enough.
      double* const partial = partial_[turn_];
      turn_ ^= 1;
      if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = static_cast<double>(mine);
      __syncthreads();
      mine = static_cast<S>(partial[0]);
      for (unsigned w = 1; w < blockDim.x / 32; ++w) mine = join(mine, static_cast<S>(partial[w]));
    } else {
      __syncwarp();  // shuffles order no memory
    }
    return mine;
  }

  uint4* near_;
  double (*partial_)[32];
  int& turn_;
  int64_t base_ = 0;
  Chunk<T> in_[kMaxRowIns], out_[kMaxRowOuts];
  bool in_open_[kMaxRowIns] = {}, out_open_[kMaxRowOuts] = {}, written_[kMaxRowOuts] = {}, settled_[kMaxRowOuts] = {};
};

constexpr int kWarpRowThreads = 128, kMostRowThreads = 512;
// Of a block's shared memory, at its head, for what its warps summed up; rows that are kept lie behind. All in one
// array, so that a launch knows what the kernel takes.
constexpr int64_t kPartialBytes = 2 * 32 * sizeof(double);
template <bool kWarp>
constexpr int64_t row_bytes(int64_t near_size) {
  return (kWarp ? 0 : kPartialBytes) + near_size * static_cast<int64_t>(sizeof(uint4));
}

// Functors that have kWholeBlocks have kernels of their own for rows that lie in memory as whole chunks: without the
// way for the others they take fewer registers, so that this many blocks of warps run at a time on a multiprocessor.
template <class F>
constexpr int whole_blocks() {
  if constexpr (requires { F::kWholeBlocks; }) return F::kWholeBlocks;
  else return 0;
}

// Two blocks at a time, where registers reach: one computes while the other loads its row. Else as many as come (0).
// Of warps whose rows are whole chunks, as many as the functor says.
template <class F, bool kWarp, bool kNear, bool kWhole>
constexpr int kRowBlocks = kWarp&& kWhole ? whole_blocks<F>()
                           : kNear && !kWarp &&
                                   ((F::kKept | F::kPassed) & (operand_bit(RowOut(0)) - 1)) == operand_bit(RowIn(0))
                               ? 2
                               : 0;

template <class F, class T, bool kWarp, bool kNear, bool kWhole>
__global__ void __launch_bounds__(kWarp ? kWarpRowThreads : kMostRowThreads, kRowBlocks<F, kWarp, kNear, kWhole>)
    row_grid(const __grid_constant__ RowArgs a, int64_t near_size) {
  constexpr unsigned kKept = kNear ? F::kKept : 0, kPassed = kNear ? F::kPassed : F::kPassed | F::kKept;
  extern __shared__ uint4 near_memory[];
  double(*const partial)[32] = reinterpret_cast<double(*)[32]>(near_memory);
  uint4* const near = near_memory + row_bytes<kWarp>(0) / static_cast<int64_t>(sizeof(uint4));
  int turn = 0;
  const int teams = kWarp ? static_cast<int>(blockDim.x / 32) : 1;
  const int team = kWarp ? static_cast<int>(threadIdx.x / 32) : 0;
  for (int64_t r = int64_t(blockIdx.x) * teams + team; r < a.rows; r += int64_t(gridDim.x) * teams) {
    GridRow<T, kWarp, kWhole, kKept, kPassed> row(a, r, near + team * near_size, partial, turn);
    F::template run<T>(row);
    row.flush();
  }
}

template <class F, class T, bool kWarp, bool kNear, bool kWhole = false>
void launch_rows(CudaQueue& queue, const RowArgs& a, int threads) {
  const int64_t teams = kWarp ? threads / 32 : 1;
  const int64_t near_size = kNear ? near_parts(a, F::kKept) * chunks_of(a.cols) : 0;
  const int64_t blocks = blocks_for(queue, (a.rows + teams - 1) / teams * threads, threads);
  launch(row_grid<F, T, kWarp, kNear, kWhole>, queue, Grid{blocks, threads, row_bytes<kWarp>(teams * near_size)}, a,
         near_size);
}

template <class F>
bool is_whole(const RowArgs& a) {
  const auto whole = [&](const RowOperand& o, unsigned operand) {
    return o.data == nullptr || ((F::kKept | F::kPassed) & operand) == 0 ||
           (fits_chunk(o.dtype) && is_aligned(o.data) && o.row_stride * size_of(o.dtype) % 16 == 0);
  };
  bool holds = a.cols % kChunk == 0;
  for (int j = 0; j < kMaxRowIns; ++j) holds &= whole(a.in[j], operand_bit(RowIn(j)));
  for (int j = 0; j < kMaxRowOuts; ++j) holds &= whole(a.out[j], operand_bit(RowOut(j)));
  return holds;
}

// A warp a row up to this length, beyond it a block, whose size and so the order of sums depends on the length alone.
constexpr int64_t kWarpCols = 1024;

// Whether a block keeps its row where that takes so much shared memory. Beyond what comes without asking: where two
// blocks still fit on a multiprocessor (each takes 1 KiB besides), or where one has as many threads as there are.
// Reasoned, not measured: a small block alone on its multiprocessor would wait for memory longer than it saves.
inline bool keeps_near(const CudaQueue& queue, int64_t bytes, int threads) {
  if (bytes <= Grid::kMostShared) return true;
  const int64_t most = most_shared(queue);
  return bytes <= (threads == kMostRowThreads ? most : most / 2 - 1024);
}

// Of a block that takes a row.
inline int row_threads(int64_t cols) {
  const int64_t chunks = chunks_of(cols);
  return chunks <= 512 ? 128 : chunks <= 2048 ? 256 : kMostRowThreads;
}

template <class F>
void for_each_row(Parallel& where, const RowArgs& a) {
  CudaQueue& queue = cuda_queue(where);
  const int64_t chunks = chunks_of(a.cols);
  const int threads = row_threads(a.cols);
  constexpr bool kKeeps = F::kKept != 0;
  if (!fits_chunk(a.in[0].dtype)) return launch_rows<F, double, false, false>(queue, a, threads);
  const bool keeps = kKeeps && keeps_near(queue, row_bytes<false>(near_parts(a, F::kKept) * chunks), threads);
  if constexpr (whole_blocks<F>() > 0) {
    if (is_whole<F>(a) && a.cols <= kWarpCols)
      return launch_rows<F, float, true, kKeeps, true>(queue, a, kWarpRowThreads);
    if (is_whole<F>(a) && keeps) return launch_rows<F, float, false, true, true>(queue, a, threads);
  }
  if (a.cols <= kWarpCols) return launch_rows<F, float, true, kKeeps>(queue, a, kWarpRowThreads);
  if constexpr (kKeeps) {
    if (keeps) return launch_rows<F, float, false, true>(queue, a, threads);
  }
  launch_rows<F, float, false, false>(queue, a, threads);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
