// Sums down columns, of gradients of norms' weights, of channels, and the outcome of a step: each sum's order follows
// from the shape alone, and not from the number of threads.
#include "core/base/state_chunk.h"
#include "core/kernels/args.h"
#include "core/kernels/outcome.h"
#include "core/kernels/parallel.h"
#include "core/kernels/rows.h"
#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int64_t kBlock = 64;      // columns a thread takes at once
constexpr int kSums = 0;            // scratch slot
constexpr int64_t kRowBlock = 128;  // rows summed before they join the total: the error grows with rows / 128 + 128

int64_t column_grain(int64_t rows, int64_t cols) { return rows * cols < 32768 ? (cols + kBlock - 1) / kBlock : 1; }

// Blocks a piece: as many as leave each thread one piece, so that rows are read in runs as long as can be; all, where
// the work is small.
int64_t wide_grain(Parallel& parallel, int64_t rows, int64_t blocks) {
  const int64_t share = (blocks + parallel.threads() - 1) / parallel.threads();
  return rows * blocks * kBlock < 32768 ? blocks : share;
}

// n values of a row in type T: in place, or converted into `line`.
template <class T>
const T* run_of(const void* data, DType dtype, int64_t at, int64_t n, T* line) {
  if (dtype == kTypeOf<T>) return static_cast<const T*>(data) + at;
  load_run<T>(data, dtype, at, 1, n, line);
  return line;
}

template <class T>
void zero(T* p, int64_t n) {
  memset(p, 0, static_cast<size_t>(n) * sizeof(T));
}

// out[at, at + n) = sum, or += sum.
template <class T>
void store_sums(void* out, DType dtype, int64_t at, bool accumulate, int64_t n, T* sum, T* line) {
  if (accumulate) {
    load_run<T>(out, dtype, at, 1, n, line);
    for (int64_t c = 0; c < n; ++c) sum[c] = line[c] + sum[c];
  }
  store_run<T>(out, dtype, at, 1, n, sum);
}

// sums[0, n) of columns from c0 on, kRowBlock rows at a time. `sums`: room for twice as many; `line`: for a row's.
template <class T>
void sum_in_blocks(const ColumnArgs& a, int64_t batch, int64_t c0, int64_t n, T* sums, T* line) {
  T* part = sums + n;
  zero(sums, n);
  for (int64_t r0 = 0; r0 < a.rows; r0 += kRowBlock) {
    const int64_t r1 = r0 + kRowBlock < a.rows ? r0 + kRowBlock : a.rows;
    zero(part, n);
    for (int64_t r = r0; r < r1; ++r) {
      const T* p = run_of<T>(a.in, a.in_dtype, (batch * a.rows + r) * a.cols + c0, n, line);
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) part[c] += p[c];
    }
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c) sums[c] += part[c];
  }
}

// The same in lanes, as a row is summed (apply.h). `sums`: room for kRowLanes times as many.
template <class T>
void sum_in_lanes(const ColumnArgs& a, int64_t batch, int64_t c0, int64_t n, T* sums, T* line) {
  zero(sums, kRowLanes * n);
  for (int64_t r = 0; r < a.rows; ++r) {
    const T* p = run_of<T>(a.in, a.in_dtype, (batch * a.rows + r) * a.cols + c0, n, line);
    T* lane = sums + r % kRowLanes * n;
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c) lane[c] += p[c];
  }
  for (int64_t half = kRowLanes / 2; half > 0; half /= 2)
#pragma GCC ivdep
    for (int64_t i = 0; i < half * n; ++i) sums[i] += sums[half * n + i];
}

template <class T>
void column_sum_in(Parallel& parallel, const ColumnArgs& a) {
  const int64_t blocks = (a.cols + kBlock - 1) / kBlock;
  // Columns [c0, c0 + n) of one of the batch.
  auto sum_columns = [&](int64_t batch, int64_t c0, int64_t n) {
    const int64_t room = (a.in_lanes ? kRowLanes : 2) * n;
    T* total = static_cast<T*>(parallel.scratch(kSums, (room + n) * static_cast<int64_t>(sizeof(T))));
    T* line = total + room;
    a.in_lanes ? sum_in_lanes(a, batch, c0, n, total, line) : sum_in_blocks(a, batch, c0, n, total, line);
    store_sums<T>(a.out, a.out_dtype, batch * a.cols + c0, a.accumulate, n, total, line);
  };
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end;) {
      const int64_t batch = item / blocks, last = (batch + 1) * blocks < end ? (batch + 1) * blocks : end;
      const int64_t c0 = item % blocks * kBlock, c1 = (last - batch * blocks) * kBlock;
      sum_columns(batch, c0, (c1 < a.cols ? c1 : a.cols) - c0);
      item = last;
    }
  };
  parallel.run(a.batch * blocks, wide_grain(parallel, a.rows, a.batch * blocks), body);
}

template <class T>
void norm_columns_in(Parallel& parallel, const NormColumnsArgs& a) {
  const int64_t blocks = (a.cols + kBlock - 1) / kBlock;
  auto body = [&](int64_t begin, int64_t end) {
    const int64_t c0 = begin * kBlock, c1 = end * kBlock < a.cols ? end * kBlock : a.cols, n = c1 - c0;
    T* weight = static_cast<T*>(parallel.scratch(kSums, 6 * n * static_cast<int64_t>(sizeof(T))));
    T *bias = weight + n, *w = bias + n, *b = w + n, *g_line = b + n, *x_line = g_line + n;
    zero(weight, 2 * n);
    for (int64_t r0 = 0; r0 < a.rows; r0 += kRowBlock) {
      const int64_t r1 = r0 + kRowBlock < a.rows ? r0 + kRowBlock : a.rows;
      zero(w, 2 * n);
      for (int64_t r = r0; r < r1; ++r) {
        const T* g = run_of<T>(a.g, a.g_dtype, r * a.cols + c0, n, g_line);
        const T* x = run_of<T>(a.x, a.x_dtype, r * a.cols + c0, n, x_line);
        const T mean = a.mean ? static_cast<const T*>(a.mean)[r] : T(0), rstd = static_cast<const T*>(a.rstd)[r];
#pragma GCC ivdep
        for (int64_t c = 0; c < n; ++c) {
          w[c] += g[c] * ((x[c] - mean) * rstd);
          b[c] += g[c];
        }
      }
#pragma GCC ivdep
      for (int64_t c = 0; c < 2 * n; ++c) weight[c] += w[c];  // and the biases, which follow
    }
    if (a.dweight) store_sums<T>(a.dweight, a.dweight_dtype, c0, a.accumulate_weight, n, weight, g_line);
    if (a.dbias) store_sums<T>(a.dbias, a.dbias_dtype, c0, a.accumulate_bias, n, bias, g_line);
  };
  parallel.run(blocks, wide_grain(parallel, a.rows, blocks), body);
}

// Sums of channels: chunks of rows are summed by themselves, then joined in order in fp64. The chunks follow from the
// shape alone.
constexpr int kPartials = 1;  // scratch slot, of the calling thread
int64_t rows_of_chunk(int64_t channels) {
  const int64_t rows = 32768 / channels;
  return rows < 16 ? 16 : rows > 512 ? 512 : rows;
}

// Rows [r0, r1), counted over the batch, of kBlock channels, or `n`, from c0: mean and squared distances from it.
template <class T>
void chunk_moments(const ChannelSumsArgs& a, int64_t r0, int64_t r1, int64_t c0, int64_t n, T* mean, T* m2) {
  alignas(64) T sum[kBlock] = {}, squares[kBlock] = {}, line[kBlock] = {};
  const auto each = [&](auto visit) {
    for (int64_t r = r0; r < r1; ++r) {
      const T* x = run_of<T>(a.x, a.x_dtype, r * a.channels + c0, n, line);
      if (n == kBlock) {
#pragma GCC ivdep
        for (int64_t c = 0; c < kBlock; ++c) visit(c, x[c]);
      } else {
        for (int64_t c = 0; c < n; ++c) visit(c, x[c]);
      }
    }
  };
  each([&](int64_t c, T x) { sum[c] += x; });
  const T share = T(1) / static_cast<T>(r1 - r0);
  for (int64_t c = 0; c < kBlock; ++c) sum[c] *= share;
  each([&](int64_t c, T x) { squares[c] += (x - sum[c]) * (x - sum[c]); });
  memcpy(mean, sum, static_cast<size_t>(n) * sizeof(T));
  memcpy(m2, squares, static_cast<size_t>(n) * sizeof(T));
}

template <class T>
void chunk_gradients(const ChannelSumsArgs& a, int64_t r0, int64_t r1, int64_t c0, int64_t n, T* of_g, T* of_both) {
  alignas(64) T sum[kBlock] = {}, both[kBlock] = {}, x_line[kBlock] = {}, g_line[kBlock] = {};
  const int64_t first = r0 / a.rows * a.channels + c0;  // of the values of channels
  const T *mean = static_cast<const T*>(a.mean) + first, *rstd = static_cast<const T*>(a.rstd) + first,
          *scale = a.scale ? static_cast<const T*>(a.scale) + first : nullptr,
          *shift = static_cast<const T*>(a.shift) + first;
  const auto each = [&](auto visit) {
    for (int64_t r = r0; r < r1; ++r) {
      const T* x = run_of<T>(a.x, a.x_dtype, r * a.channels + c0, n, x_line);
      const T* g = run_of<T>(a.g, a.g_dtype, r * a.channels + c0, n, g_line);
      if (n == kBlock) {
#pragma GCC ivdep
        for (int64_t c = 0; c < kBlock; ++c) visit(c, x[c], g[c]);
      } else {
        for (int64_t c = 0; c < n; ++c) visit(c, x[c], g[c]);
      }
    }
  };
  const auto add = [&](int64_t c, T x, T g) {
    sum[c] += g;
    both[c] += g * ((x - mean[c]) * rstd[c]);
  };
  if (scale) each([&](int64_t c, T x, T g) { add(c, x, fused(x, scale[c], shift[c]) > T(0) ? g : T(0)); });
  else each(add);
  memcpy(of_g, sum, static_cast<size_t>(n) * sizeof(T));
  memcpy(of_both, both, static_cast<size_t>(n) * sizeof(T));
}

template <class T>
void channel_sums_in(Parallel& parallel, const ChannelSumsArgs& a) {
  const int64_t C = a.channels, rows = rows_of_chunk(C), chunks = (a.rows + rows - 1) / rows;
  T* partials =
      static_cast<T*>(parallel.scratch(kPartials, a.batch * chunks * 2 * C * static_cast<int64_t>(sizeof(T))));
  auto of_chunks = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t start = i / chunks * a.rows, r0 = start + i % chunks * rows,
                    r1 = r0 + rows < start + a.rows ? r0 + rows : start + a.rows;
      T* out = partials + i * 2 * C;
      for (int64_t c0 = 0; c0 < C; c0 += kBlock) {
        const int64_t n = C - c0 < kBlock ? C - c0 : kBlock;
        if (a.g) chunk_gradients<T>(a, r0, r1, c0, n, out + c0, out + C + c0);
        else chunk_moments<T>(a, r0, r1, c0, n, out + c0, out + C + c0);
      }
    }
  };
  parallel.run(a.batch * chunks, 16384 / (rows * C) + 1, of_chunks);
  auto join = [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {  // of [batch, channels]
      const T* mine = partials + c / C * chunks * 2 * C + c % C;
      double first = 0, second = 0, count = 0;
      for (int64_t i = 0; i < chunks; ++i) {
        const double p = static_cast<double>(mine[i * 2 * C]), q = static_cast<double>(mine[i * 2 * C + C]);
        if (a.g) {
          first += p, second += q;
          continue;
        }
        // Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979)
        const double n = static_cast<double>((i + 1) * rows < a.rows ? rows : a.rows - i * rows);
        const double distance = p - first, total = count + n;
        first += distance * (n / total);
        second += q + distance * distance * (count * n / total);
        count = total;
      }
      static_cast<T*>(a.out0)[c] = static_cast<T>(first);
      static_cast<T*>(a.out1)[c] = static_cast<T>(second);
    }
  };
  parallel.run(a.batch * C, 16384 / (chunks + 1) + 1, join);
}

double tree_sum(const double* values, int64_t n) {
  if (n == 1) return values[0];
  int64_t half = 1;
  while (half * 2 < n) half *= 2;
  return tree_sum(values, half) + tree_sum(values + half, n - half);
}

}  // namespace

void column_sum(Parallel& parallel, const ColumnArgs& a) {
  if (a.in_dtype == DType::kFloat64) column_sum_in<double>(parallel, a);
  else column_sum_in<float>(parallel, a);
}

void norm_columns(Parallel& parallel, const NormColumnsArgs& a) {
  if (a.x_dtype == DType::kFloat64) norm_columns_in<double>(parallel, a);
  else norm_columns_in<float>(parallel, a);
}

void channel_sums(Parallel& parallel, const ChannelSumsArgs& a) {
  if (a.x_dtype == DType::kFloat64) channel_sums_in<double>(parallel, a);
  else channel_sums_in<float>(parallel, a);
}

void fold(Parallel& parallel, const FoldArgs& a) {
  if (a.verdict[UpdateControlArgs::kSkip] != 0) return;
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < a.count; ++i) {
      const float* row = a.rows + a.order[i] * a.stride;
#pragma GCC ivdep
      for (int64_t e = begin; e < end; ++e) a.value[e] = folded(a.value[e], row[e], a.rate);
    }
  };
  parallel.run(a.elements, 16384, body);
}

void gather(Parallel& parallel, const GatherArgs& a) {
  const bool plain = a.table_dtype == a.rows_dtype;
  const int64_t size = size_of(a.table_dtype);
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t from = static_cast<int64_t>(a.index[r]) * a.cols, to = r * a.cols;
      if (plain)
        memcpy(static_cast<char*>(a.rows_data) + to * size, static_cast<const char*>(a.table) + from * size,
               static_cast<size_t>(a.cols * size));
      else
        for (int64_t c = 0; c < a.cols; ++c)
          store_element<float>(a.rows_data, a.rows_dtype, to + c,
                               load_element<float>(a.table, a.table_dtype, from + c));
    }
  };
  parallel.run(a.rows, 16384 / (a.cols + 1) + 1, body);
}

void scatter_add(Parallel& parallel, const GatherArgs& a) {
  const int64_t blocks = (a.cols + kBlock - 1) / kBlock;
  auto body = [&](int64_t begin, int64_t end) {
    const int64_t c0 = begin * kBlock, c1 = end * kBlock < a.cols ? end * kBlock : a.cols;
    float line[kBlock];
    for (int64_t r = 0; r < a.rows; ++r) {
      const int64_t to = static_cast<int64_t>(a.index[r]) * a.cols, from = r * a.cols;
      if (a.table_dtype == DType::kFloat32) {
        float* t = static_cast<float*>(a.table) + to;
        for (int64_t c = c0; c < c1; c += kBlock) {
          const int64_t n = c1 - c < kBlock ? c1 - c : kBlock;
          const float* g = static_cast<const float*>(a.rows_data) + from + c;
          if (a.rows_dtype != DType::kFloat32) {
            load_run<float>(a.rows_data, a.rows_dtype, from + c, 1, n, line);
            g = line;
          }
#pragma GCC ivdep
          for (int64_t i = 0; i < n; ++i) t[c + i] += g[i];
        }
      } else if (a.table_dtype == DType::kFloat64) {
        for (int64_t c = c0; c < c1; ++c)
          static_cast<double*>(a.table)[to + c] += load_element<double>(a.rows_data, a.rows_dtype, from + c);
      } else {
        for (int64_t c = c0; c < c1; ++c)
          store_element<float>(a.table, a.table_dtype, to + c,
                               load_element<float>(a.table, a.table_dtype, to + c) +
                                   load_element<float>(a.rows_data, a.rows_dtype, from + c));
      }
    }
  };
  parallel.run(blocks, column_grain(a.rows, a.cols), body);
}

void tree_add(Parallel& parallel, float* sum, const float* other, int64_t n) {
  auto body = [&](int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) sum[i] += other[i];
  };
  parallel.run(n, 65536, body);
}

// Eight lanes, then a fixed tree: i with i + 4, with i + 2 and with i + 1.
void chunk_norms(Parallel& parallel, const float* x, int64_t n, double* out) {
  typedef double Eight __attribute__((vector_size(64)));
  typedef int64_t EightIndices __attribute__((vector_size(64)));
  typedef float EightFloats __attribute__((vector_size(32)));
  constexpr int64_t kChunk = kStateChunk;
  const int64_t chunks = (n + kChunk - 1) / kChunk;
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const float* p = x + c * kChunk;
      const int64_t count = n - c * kChunk < kChunk ? n - c * kChunk : kChunk;
      Eight lane{};
      if (count == kChunk) {
#pragma GCC unroll 8
        for (int64_t i = 0; i < kChunk; i += 8) {
          EightFloats f;
          memcpy(&f, p + i, sizeof f);
          const Eight x8 = __builtin_convertvector(f, Eight);
          lane += x8 * x8;
        }
      } else {
        for (int64_t i = 0; i < count; ++i) lane[i % 8] += static_cast<double>(p[i]) * static_cast<double>(p[i]);
      }
      lane += __builtin_shuffle(lane, EightIndices{4, 5, 6, 7, 0, 1, 2, 3});
      lane += __builtin_shuffle(lane, EightIndices{2, 3, 0, 1, 6, 7, 4, 5});
      out[c] = lane[0] + lane[1];
    }
  };
  parallel.run(chunks, 1024, body);
}

void tree_sums(Parallel& parallel, const TreeSumsArgs& a) {
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      a.out[i] = tree_sum(a.values + a.ranges[2 * i], a.ranges[2 * i + 1] - a.ranges[2 * i]);
  };
  parallel.run(a.count, 16, body);
}

void store(Parallel&, const StoreArgs& a) {
  for (int i = 0; i < a.count; ++i) a.out[i] = a.value[i];
}

}  // namespace lockstep::inline LOCKSTEP_ISA
