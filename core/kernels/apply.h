// for_each and for_each_row: the loops of pointwise and row kernels. A functor is written once; this file runs it over
// tiles on CPU threads, core/device/cuda/kernels/pointwise_grid.h and row_grid.h on a grid of CUDA threads. Stateless.
//
// A pointwise functor F: F(const PointwiseArgs&) reads its scalars; `operator()(T...)` takes kIns values and returns
// one value, or Many<T, kOuts>. A row functor has `template <class T, class Row> static void run(Row&)` (class CpuRow
// below). It names its operands (core/kernels/rows.h) and says which of them are rows, as a sum of operand_bit(): kKept
// those that several passes read, which a GPU keeps in shared memory, and kPassed the rest. In each pass, iteration i
// may only touch element i of the rows.
#pragma once

#include <span>

#include "core/kernels/parallel.h"
#include "core/kernels/pointwise.h"
#include "core/kernels/rows.h"
#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {

template <class T, int N>
struct Many {
  T v[N];
};
template <int N, class T>
HD inline T pick(const Many<T, N>& many, int j) {
  return many.v[j];
}
template <int N, class T>
HD inline T pick(T one, int) {
  return one;
}

template <class F, class T>
HD inline auto call(const F& f, const T* v) {
  if constexpr (F::kIns == 0) return f(T(0));
  if constexpr (F::kIns == 1) return f(v[0]);
  if constexpr (F::kIns == 2) return f(v[0], v[1]);
  if constexpr (F::kIns == 3) return f(v[0], v[1], v[2]);
  if constexpr (F::kIns == 4) return f(v[0], v[1], v[2], v[3]);
  if constexpr (F::kIns == 5) return f(v[0], v[1], v[2], v[3], v[4]);
  if constexpr (F::kIns == 6) return f(v[0], v[1], v[2], v[3], v[4], v[5]);
  if constexpr (F::kIns == 7) return f(v[0], v[1], v[2], v[3], v[4], v[5], v[6]);
}

inline bool any_wide(const PointwiseArgs& a) {
  auto wide = [](const Operand& o) {
    return o.dtype == DType::kFloat64 || o.dtype == DType::kInt64 || o.dtype == DType::kInt32;
  };
  bool found = false;
  for (int j = 0; j < a.ins; ++j) found |= wide(a.in[j]);
  for (int j = 0; j < a.outs; ++j) found |= wide(a.out[j]);
  return found;
}

HD constexpr unsigned operand_bit(RowIn j) { return 1u << static_cast<int>(j); }
HD constexpr unsigned operand_bit(RowOut j) { return 1u << (8 + static_cast<int>(j)); }

#if !defined(LOCKSTEP_GRID)

constexpr int64_t kTile = 1024;
constexpr int64_t kPointwiseGrain = 16384;  // below this a second thread costs more than it brings

// Element offset of linear index i in an operand.
inline int64_t offset_of(const PointwiseArgs& a, const Operand& o, int64_t i) {
  int64_t offset = 0;
  for (int d = a.dims - 1; d >= 0; --d) {
    offset += (i % a.sizes[d]) * o.strides[d];
    i /= a.sizes[d];
  }
  return offset;
}

inline bool is_linear(const PointwiseArgs& a, const Operand& o) {
  int64_t step = 1;
  for (int d = a.dims - 1; d >= 0; --d) {
    if (a.sizes[d] != 1 && o.strides[d] != step) return false;
    step *= a.sizes[d];
  }
  return true;
}

// Calls run(done, offset, stride, n) for each stretch of [begin, begin + count) along the last dimension.
template <class Run>
inline void walk(const PointwiseArgs& a, const Operand& o, int64_t begin, int64_t count, Run run) {
  const int last = a.dims - 1;
  const int64_t extent = last >= 0 ? a.sizes[last] : 1;
  const int64_t stride = last >= 0 ? o.strides[last] : 0;
  int64_t done = 0;
  while (done < count) {
    int64_t i = begin + done;
    int64_t left = extent - (last >= 0 ? i % extent : 0);
    int64_t n = left < count - done ? left : count - done;
    run(done, offset_of(a, o, i), stride, n);
    done += n;
  }
}

// Whether an operand is one line of the last dimension for all others, which falls into a tile a whole number of times:
// from one beginning of a tile to the next it is the same.
inline bool repeats_in_tiles(const PointwiseArgs& a, const Operand& o) {
  return a.dims == 2 && o.strides[0] == 0 && kTile % a.sizes[1] == 0;
}

// Whether neighbours of the last dimension lie apart, and those of the one before it side by side.
template <class T>
bool is_transposed(const PointwiseArgs& a, const Operand& o) {
  return a.dims >= 2 && o.dtype == kTypeOf<T> && o.strides[a.dims - 2] == 1 && o.strides[a.dims - 1] > 1;
}
// Brings `count` elements of such an operand into a dense tile: whole lines of the last dimension several at a time,
// column by column.
template <class T>
void load_transposed(const PointwiseArgs& a, const Operand& o, int64_t begin, int64_t count, T* tile) {
  const int64_t extent = a.sizes[a.dims - 1], above = a.sizes[a.dims - 2], stride = o.strides[a.dims - 1];
  for (int64_t done = 0, n; done < count; done += n) {
    const int64_t i = begin + done, line = i / extent, column = i % extent;
    const T* from = static_cast<const T*>(o.data) + offset_of(a, o, i);
    T* to = tile + done;
    const int64_t whole = (count - done) / extent, left = above - line % above, lines = whole < left ? whole : left;
    if (column != 0 || lines == 0) {
      n = extent - column < count - done ? extent - column : count - done;
      for (int64_t c = 0; c < n; ++c) to[c] = from[c * stride];
    } else {
      n = lines * extent;
      for (int64_t c = 0; c < extent; ++c)
        for (int64_t l = 0; l < lines; ++l) to[l * extent + c] = from[c * stride + l];
    }
  }
}

// The loop of one functor over a dense tile.
template <class T>
using TileLoop = void (*)(const PointwiseArgs& a, const T* const* in, T* const* out, int64_t n);

template <class F, class T>
void tile_loop(const PointwiseArgs& a, const T* const* in, T* const* out, int64_t n) {
  const F f(a);
  const T* from[F::kIns > 0 ? F::kIns : 1];
  T* to[F::kOuts];
  for (int j = 0; j < F::kIns; ++j) from[j] = in[j];
  for (int j = 0; j < F::kOuts; ++j) to[j] = out[j];
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    T v[F::kIns > 0 ? F::kIns : 1];
    for (int j = 0; j < F::kIns; ++j) v[j] = from[j][i];
    auto r = call<F, T>(f, v);
    for (int j = 0; j < F::kOuts; ++j) to[j][i] = pick<F::kOuts>(r, j);
  }
}

// Where an operand is read or written in one run: all of it, or where tiles are (parts of) lines of the last dimension,
// each of those.
enum class InPlace : uint8_t { kNever, kLines, kAll };

template <class T>
InPlace in_place(const PointwiseArgs& a, const Operand& o) {
  constexpr int64_t kLeast = 256;  // elements: shorter lines would be short tiles
  if (o.dtype != kTypeOf<T>) return InPlace::kNever;
  if (is_linear(a, o)) return InPlace::kAll;
  const int last = a.dims - 1;
  return a.sizes[last] >= kLeast && o.strides[last] == 1 ? InPlace::kLines : InPlace::kNever;
}

// All that does not depend on the functor, so that a program has it once: brings operands into dense tiles, and back.
template <class T>
[[gnu::noinline]] void pointwise_range(const PointwiseArgs& a, int ins, int outs, int64_t begin, int64_t end,
                                       TileLoop<T> loop) {
  alignas(64) T in_tile[kMaxIns][kTile];
  alignas(64) T out_tile[kMaxOuts][kTile];
  // Tiles end with lines where that leaves an operand in place, and no other needs several lines at once.
  InPlace in_direct[kMaxIns], out_direct[kMaxOuts];
  bool gains = false, several = false;
  for (int j = 0; j < ins; ++j) {
    in_direct[j] = in_place<T>(a, a.in[j]);
    gains |= in_direct[j] == InPlace::kLines && !repeats_in_tiles(a, a.in[j]);
    several |= is_transposed<T>(a, a.in[j]);
  }
  for (int j = 0; j < outs; ++j) {
    out_direct[j] = in_place<T>(a, a.out[j]);
    gains |= out_direct[j] == InPlace::kLines;
  }
  const bool by_lines = gains && !several;
  for (int64_t at = begin, n; at < end; at += n) {
    n = end - at < kTile ? end - at : kTile;
    int64_t index[kMaxDims] = {};  // of `at`, where tiles are lines
    if (by_lines) {
      for (int64_t d = a.dims - 1, i = at; d >= 0; i /= a.sizes[d], --d) index[d] = i % a.sizes[d];
      if (const int64_t left = a.sizes[a.dims - 1] - index[a.dims - 1]; left < n) n = left;
    }
    // Where the tile lies, if in one run; else null.
    const auto run_of = [&](const Operand& o, InPlace direct) -> T* {
      if (direct == InPlace::kAll) return static_cast<T*>(o.data) + at;
      if (!by_lines || direct == InPlace::kNever) return nullptr;
      int64_t offset = 0;
      for (int d = 0; d < a.dims; ++d) offset += index[d] * o.strides[d];
      return static_cast<T*>(o.data) + offset;
    };
    const T* in[kMaxIns];
    T* out[kMaxOuts];
    for (int j = 0; j < ins; ++j) {
      const Operand& o = a.in[j];
      if (const T* run = run_of(o, in_direct[j])) {
        in[j] = run;
      } else if (at > begin && !by_lines && repeats_in_tiles(a, o)) {
        in[j] = in_tile[j];
      } else if (is_transposed<T>(a, o)) {
        load_transposed<T>(a, o, at, n, in_tile[j]);
        in[j] = in_tile[j];
      } else {
        walk(a, o, at, n, [&](int64_t done, int64_t offset, int64_t stride, int64_t count) {
          load_run<T>(o.data, o.dtype, offset, stride, count, in_tile[j] + done);
        });
        in[j] = in_tile[j];
      }
    }
    for (int j = 0; j < outs; ++j) {
      T* const run = run_of(a.out[j], out_direct[j]);
      out[j] = run ? run : out_tile[j];
    }
    loop(a, in, out, n);
    for (int j = 0; j < outs; ++j) {
      const Operand& o = a.out[j];
      if (out[j] == out_tile[j])
        walk(a, o, at, n, [&](int64_t done, int64_t offset, int64_t stride, int64_t count) {
          store_run<T>(o.data, o.dtype, offset, stride, count, out_tile[j] + done);
        });
    }
  }
}

// A functor that takes much longer than a few multiplications says its own.
template <class F>
constexpr int64_t grain_of() {
  if constexpr (requires { F::kGrain; }) return F::kGrain;
  else return kPointwiseGrain;
}

template <class F>
void for_each(Parallel& parallel, const PointwiseArgs& a) {
  const bool wide = any_wide(a);
  auto body = [&](int64_t begin, int64_t end) {
    if (wide) pointwise_range<double>(a, F::kIns, F::kOuts, begin, end, tile_loop<F, double>);
    else pointwise_range<float>(a, F::kIns, F::kOuts, begin, end, tile_loop<F, float>);
  };
  parallel.run(a.numel, grain_of<F>(), body);
}

// One after the other; a grid takes many in one launch.
template <class F>
void for_each_of(Parallel& parallel, std::span<const PointwiseArgs> parts) {
  for (const PointwiseArgs& a : parts) for_each<F>(parallel, a);
}

// A row, converted: once in a program, not once in each functor.
template <class T>
[[gnu::noinline]] void load_dense(const RowOperand& o, int64_t row, int64_t n, T* to) {
  load_run<T>(o.data, o.dtype, row * o.row_stride, 1, n, to);
}
template <class T>
[[gnu::noinline]] void store_dense(const RowOperand& o, int64_t row, int64_t n, const T* from) {
  store_run<T>(o.data, o.dtype, row * o.row_stride, 1, n, from);
}

// What a row functor sees: its row's operands in type T, and reductions whose order depends on the length alone (32
// lanes, then a fixed tree: equal bits at every vector width).
template <class T>
class CpuRow {
 public:
  CpuRow(const RowArgs& a, Parallel& parallel) : args(a), parallel_(parallel) {}

  const RowArgs& args;
  int64_t row = 0;

  bool has(RowIn j) const { return of(j).data != nullptr; }
  // The whole row j, converted where it is stored in another type.
  const T* in(RowIn j) {
    const RowOperand& o = of(j);
    if (o.dtype == kTypeOf<T>) return static_cast<const T*>(o.data) + row * o.row_stride;
    T* staged = scratch(static_cast<int>(j));
    load_dense<T>(o, row, args.cols, staged);
    return staged;
  }
  // Element i of row j; of an operand with one value a row, that value.
  T in_value(RowIn j, int64_t i = 0) const {
    const RowOperand& o = of(j);
    return load_element<T>(o.data, o.dtype, row * o.row_stride + i);
  }
  int64_t in_integer(RowIn j, int64_t i = 0) const {
    const RowOperand& o = of(j);
    return o.dtype == DType::kInt64 ? static_cast<const int64_t*>(o.data)[row * o.row_stride + i]
                                    : static_cast<const int32_t*>(o.data)[row * o.row_stride + i];
  }
  // Element i of row j, whose length is its row_stride; 0 outside.
  T in_at(RowIn j, int64_t i) const { return i < 0 || i >= of(j).row_stride ? T(0) : in_value(j, i); }
  T* out(RowOut j) {
    const RowOperand& o = of(j);
    if (o.dtype == kTypeOf<T>) return static_cast<T*>(o.data) + row * o.row_stride;
    staged_[static_cast<int>(j)] = true;
    return out_scratch(j);
  }
  // Row j is written: it goes out now, and from here on reads as it is stored, rounded to its type.
  void settle(RowOut j) {
    if (!staged_[static_cast<int>(j)]) return;
    const RowOperand& o = of(j);
    write_out(j);
    load_dense<T>(o, row, args.cols, out_scratch(j));
    staged_[static_cast<int>(j)] = false;
  }
  void out_value(RowOut j, T v) { store_element<T>(of(j).data, of(j).dtype, row * of(j).row_stride, v); }
  void out_wide(RowOut j, double v) { static_cast<double*>(of(j).data)[row * of(j).row_stride] = v; }
  // Element i of a row of int32; of any row, set, or added to (in in_order alone; nothing outside the row).
  void out_index(RowOut j, int64_t i, int32_t v) { static_cast<int32_t*>(of(j).data)[row * of(j).row_stride + i] = v; }
  void out_at(RowOut j, int64_t i, T v) { store_element<T>(of(j).data, of(j).dtype, row * of(j).row_stride + i, v); }
  void add_at(RowOut j, int64_t i, T v) {
    const RowOperand& o = of(j);
    if (i < 0 || i >= o.row_stride) return;
    out_at(j, i, load_element<T>(o.data, o.dtype, row * o.row_stride + i) + v);
  }

  template <class G>
  void each(int64_t n, G g) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) g(i);
  }
  // One after another; g reads by in_value and writes by out_at and add_at.
  template <class G>
  void in_order(int64_t n, G g) {
    for (int64_t i = 0; i < n; ++i) g(i);
  }
  // g is given every fourth element, and deals with those that follow it as well, where they are below n.
  template <class G>
  void each_four(int64_t n, G g) {
    for (int64_t i = 0; i < n; i += 4) g(i);
  }
  template <class G>
  auto sum(int64_t n, G g) {
    using S = decltype(g(int64_t(0)));
    return fold<S>(n, S(0), g, [](S a, S b) { return a + b; });
  }
  template <class G>
  T max(int64_t n, G g) {
    return fold<T>(n, T(-INFINITY), g, [](T a, T b) { return b > a ? b : a; });
  }

  void flush() {
    for (int j = 0; j < kMaxRowOuts; ++j)
      if (staged_[j]) write_out(RowOut(j));
  }

 private:
  const RowOperand& of(RowIn j) const { return args.in[static_cast<int>(j)]; }
  const RowOperand& of(RowOut j) const { return args.out[static_cast<int>(j)]; }
  void write_out(RowOut j) {
    const RowOperand& o = of(j);
    store_dense<T>(o, row, args.cols, out_scratch(j));
  }
  T* out_scratch(RowOut j) { return scratch(kMaxRowIns + static_cast<int>(j)); }
  // Only where a row is stored in another type: one long row in its own type costs no memory.
  T* scratch(int slot) {
    const int64_t padded = (args.cols + 15) / 16 * 16;
    constexpr int64_t kSlots = kMaxRowIns + kMaxRowOuts;
    return static_cast<T*>(parallel_.scratch(2, kSlots * padded * static_cast<int64_t>(sizeof(T)))) + slot * padded;
  }

  template <class S, class G, class Join>
  S fold(int64_t n, S start, G g, Join join) {
    constexpr int kLanes = kRowLanes;
    S lane[kLanes];
    for (int l = 0; l < kLanes; ++l) lane[l] = start;
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
#pragma GCC ivdep
      for (int l = 0; l < kLanes; ++l) lane[l] = join(lane[l], g(i + l));
    }
    for (int l = 0; i + l < n; ++l) lane[l] = join(lane[l], g(i + l));
    for (int half = kLanes / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) lane[l] = join(lane[l], lane[l + half]);
    return lane[0];
  }

  Parallel& parallel_;
  bool staged_[kMaxRowOuts] = {};
};

template <class F, class T>
void rows_in(Parallel& parallel, const RowArgs& a) {
  int64_t grain = kPointwiseGrain / (a.cols > 0 ? a.cols : 1) + 1;
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      CpuRow<T> row(a, parallel);
      row.row = r;
      F::template run<T>(row);
      row.flush();
    }
  };
  parallel.run(a.rows, grain, body);
}

template <class F>
void for_each_row(Parallel& parallel, const RowArgs& a) {
  if (a.in[0].dtype == DType::kFloat64) rows_in<F, double>(parallel, a);
  else rows_in<F, float>(parallel, a);
}

#endif

}  // namespace lockstep::inline LOCKSTEP_ISA
