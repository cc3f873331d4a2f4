// for_each_row on a grid of CUDA threads. No result depends on the grid: the order of a row's sum follows from its
// length. Stateless.
#pragma once

#include "core/device/cuda/kernels/chunk.h"
#include "core/device/cuda/kernels/launch.h"
#include "core/kernels/apply.h"

namespace lockstep::inline LOCKSTEP_ISA {

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
