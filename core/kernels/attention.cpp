// Attention, tiled over queries: the scores of one block of rows at a time, so that memory grows linearly with
// the sequence length; the backward pass recomputes them from the saved log-sum-exp. After Dao et al., "FlashAttention"
// (2022). A head of a sample is one task, in the backward pass a head of keys with the heads of queries that share it:
// sums over query blocks run in order, whatever the threads.
#include <limits>
#include <type_traits>

#include "core/kernels/attention_dropout.h"
#include "core/kernels/gemm_serial.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int64_t kQueries = 64;  // rows of scores held at once
constexpr int64_t kLanes = 16;    // of sums along rows

// A row of scores is followed by room up to whole lanes.
int64_t whole_lanes(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }
constexpr int kScores = 3;  // scratch slot

template <class T>
struct Head {
  Matrix q, k, v, dq, dk, dv, y, dy;
  T* lse;
};

// `item`: of [batch, heads].
template <class T>
Head<T> head_of(const AttentionArgs& a, int64_t item) {
  const int64_t b = item / a.heads, h = item % a.heads, shared = h / (a.heads / a.kv_heads);
  auto rows = [&](const HeadRows& r, int64_t head, int64_t time) {
    return block_of({r.data, a.dtype, r.stride, 1, 0}, b * time, head * a.dim);
  };
  auto of_queries = [&](const HeadRows& r) { return rows(r, h, a.time); };
  auto of_keys = [&](const HeadRows& r) { return rows(r, shared, a.key_time()); };
  auto plain = [&](void* data) { return of_queries({data, a.heads * a.dim}); };
  return {of_queries(a.q),  of_keys(a.k),  of_keys(a.v),
          of_queries(a.dq), of_keys(a.dk), of_keys(a.dv),
          plain(a.y),       plain(a.dy),   static_cast<T*>(a.lse) + item * a.time};
}

// A block of queries and the keys that any of them sees.
struct QueryBlock {
  QueryBlock(const AttentionArgs& a, int64_t sample, int64_t from)
      : q0(from),
        rows(rows_from(a, sample, from)),
        k0(a.first_key(sample, from - (a.start(sample) + from) % kQueries)),
        keys(a.end_key(sample, from + rows - 1) - k0),
        ld(whole_lanes(keys)) {}
  // Blocks begin at whole multiples of positions, so that sums over keys do not depend on which query came first.
  static int64_t rows_from(const AttentionArgs& a, int64_t sample, int64_t from) {
    const int64_t most = kQueries - (a.start(sample) + from) % kQueries;
    return a.time - from < most ? a.time - from : most;
  }
  int64_t q0, rows, k0, keys;
  int64_t ld;  // elements from one row of scores to the next
};

// The most elements that a block's scores take.
int64_t score_room(const AttentionArgs& a) {
  const int64_t all = a.key_time(), keys = a.window > 0 && a.window < all ? a.window + kQueries : all;
  return kQueries * whole_lanes(keys < all ? keys : all);
}

inline Matrix transposed(const Matrix& m) { return {m.data, m.dtype, m.col_stride, m.row_stride, m.batch_stride}; }

template <class T>
void multiply(Parallel& p, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, Matrix c, const Stairs& stairs,
              bool accumulate = false) {
  GemmArgs g;
  g.m = m, g.n = n, g.k = k, g.a = a, g.b = b, g.c = c, g.accumulate = accumulate;
  gemm_serial<T>(p, g, stairs);
}

// Whether products leave out what causal order makes 0: a query sees no key after itself.
template <class T>
bool leaves_out(const AttentionArgs& a) {
  return a.causal && a.dtype == kTypeOf<T>;
}
template <class T>
Stairs stairs_of(const AttentionArgs& a, int64_t sample, const QueryBlock& block, Stairs::Of of) {
  return leaves_out<T>(a) ? Stairs{of, block.q0 + a.start(sample) - block.k0} : Stairs{};
}
// How much is left out depends on the tiles of a level, and with it whether a sum is -0 or 0: makes both 0.
template <class T>
void without_sign(int64_t rows, int64_t cols, T* data, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < cols; ++i) data[r * stride + i] += T(0);
}

template <class T>
Matrix dense(T* data, int64_t cols) {
  return {data, kTypeOf<T>, cols, 1, 0};
}

// Rows of scores, `ld` apart, as an operand of products: in bf16, where all other operands are, `low` takes them
// rounded.
template <class T>
Matrix operand(const AttentionArgs& a, T* scores, int64_t rows, int64_t ld, void* low) {
  if (a.dtype != DType::kBFloat16) return dense(scores, ld);
  store_run<T>(low, a.dtype, 0, 1, rows * ld, scores);
  return {low, a.dtype, ld, 1, 0};
}

template <class T>
using Lanes = T[kLanes];

// Folds g(0..n) in 16 lanes.
template <class T, class G, class Join>
void fold_in_lanes(int64_t n, T start, G g, Join join, Lanes<T>& out) {
  Lanes<T> lane;
  for (int l = 0; l < kLanes; ++l) lane[l] = start;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC ivdep
    for (int l = 0; l < kLanes; ++l) lane[l] = join(lane[l], g(i + l));
  }
  for (int l = 0; i + l < n; ++l) lane[l] = join(lane[l], g(i + l));
  for (int l = 0; l < kLanes; ++l) out[l] = lane[l];
}

// The lanes of each row in a fixed tree. Rows by rows, so that none waits for another's.
template <class T, class Join>
void fold_lanes(int64_t rows, Lanes<T>* lanes, Join join, T* out) {
  const auto level = [&](auto half) {
    for (int64_t r = 0; r < rows; ++r)
      for (int l = 0; l < half; ++l) lanes[r][l] = join(lanes[r][l], lanes[r][l + half]);
  };
  level(std::integral_constant<int, 8>());
  level(std::integral_constant<int, 4>());
  level(std::integral_constant<int, 2>());
  for (int64_t r = 0; r < rows; ++r) out[r] = join(lanes[r][0], lanes[r][1]);
}

// The factors of keys [first, end) for one query, into factors[0 .. end - first). Many numbers are drawn at once, so
// that the generator runs in vectors.
template <class T>
void drop_factors(const AttentionArgs& a, int64_t item, int64_t query, int64_t first, int64_t end, T* factors) {
  constexpr int64_t kGroups = 16;
  const DropFactors drawn(a, item, query);
  const float p = drawn.p;
  const T kept = static_cast<T>(drawn.kept);
  for (int64_t from = first / (4 * kGroups) * 4 * kGroups; from < end; from += 4 * kGroups) {
    uint32_t bits[4][kGroups];
    T of[4 * kGroups];
#pragma GCC ivdep
    for (int64_t g = 0; g < kGroups; ++g) {
      const Philox4 r = drawn.four(from / 4 + g);
      bits[0][g] = r.v[0], bits[1][g] = r.v[1], bits[2][g] = r.v[2], bits[3][g] = r.v[3];
    }
    for (int64_t g = 0; g < kGroups; ++g)
      for (int64_t l = 0; l < 4; ++l) of[4 * g + l] = uniform_of(bits[l][g]) < p ? T(0) : kept;
    const int64_t i0 = from > first ? from : first, i1 = from + 4 * kGroups < end ? from + 4 * kGroups : end;
    for (int64_t i = i0; i < i1; ++i) factors[i - first] = of[i - from];
  }
}

// Turns a block's scores into probabilities, of dropped keys 0 and of the others times their factor; `lse`: of its
// rows. In passes over the rows, so that a row's sums do not wait for those of the row before. `room`: for one row.
template <class T>
void softmax(const AttentionArgs& a, int64_t item, const QueryBlock& block, T* scores, void* room, T* lse) {
  const auto [q0, rows, k0, keys, ld] = block;
  const T scale = static_cast<T>(a.scale);
  const int64_t sample = item / a.heads;
  Lanes<T> lanes[kQueries];
  T max[kQueries], sum[kQueries];
  int64_t before[kQueries], seen[kQueries];
  const auto larger = [](T x, T y) { return y > x ? y : x; };
  for (int64_t r = 0; r < rows; ++r) {
    T* s = scores + r * ld;
    before[r] = a.first_key(sample, q0 + r) - k0, seen[r] = a.end_key(sample, q0 + r) - k0;
    // Keys that it does not see have no weight: so a row is folded in whole lanes.
    const int64_t n = whole_lanes(seen[r]);
    for (int64_t i = 0; i < before[r]; ++i) s[i] = -std::numeric_limits<T>::infinity();
    for (int64_t i = seen[r]; i < n; ++i) s[i] = -std::numeric_limits<T>::infinity();
    if (a.documents)
      for (int64_t i = before[r]; i < seen[r]; ++i)
        if (!a.in_document(sample, q0 + r, k0 + i)) s[i] = -std::numeric_limits<T>::infinity();
    fold_in_lanes<T>(
        n, s[0], [&](int64_t i) { return s[i]; }, larger, lanes[r]);
  }
  fold_lanes<T>(rows, lanes, larger, max);
  const auto add = [](T x, T y) { return x + y; };
  for (int64_t r = 0; r < rows; ++r) {
    T* s = scores + r * ld;
    const T most = max[r];
    fold_in_lanes<T>(
        whole_lanes(seen[r]), T(0),
        [&](int64_t i) {
          T e = exp_of((s[i] - most) * scale);
          s[i] = e;
          return e;
        },
        add, lanes[r]);
  }
  fold_lanes<T>(rows, lanes, add, sum);
  for (int64_t r = 0; r < rows; ++r) {
    T* s = scores + r * ld;
    const int64_t n = whole_lanes(seen[r]);
    const T inverse = T(1) / sum[r];
    for (int64_t i = 0; i < n; ++i) s[i] *= inverse;
    for (int64_t i = n; i < ld; ++i) s[i] = T(0);
    if (a.drop_probability > 0) {
      T* const factors = static_cast<T*>(room);
      drop_factors(a, item, q0 + r, k0 + before[r], k0 + seen[r], factors);
      for (int64_t i = before[r]; i < seen[r]; ++i) s[i] *= factors[i - before[r]];
    }
  }
  for (int64_t r = 0; r < rows; ++r) lse[r] = max[r] * scale + log_of(sum[r]);
}

template <class T>
void forward_in(Parallel& parallel, const AttentionArgs& a) {
  auto body = [&](int64_t begin, int64_t end) {
    const int64_t room = score_room(a);
    T* scores = static_cast<T*>(parallel.scratch(kScores, room * static_cast<int64_t>(sizeof(T) + sizeof(uint16_t))));
    void* low = scores + room;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t sample = item / a.heads;
      const Head<T> h = head_of<T>(a, item);
      for (int64_t from = 0; from < a.time; from += QueryBlock::rows_from(a, sample, from)) {
        const QueryBlock block(a, sample, from);
        const auto [q0, rows, k0, keys, ld] = block;
        const Matrix k = block_of(h.k, k0, 0), v = block_of(h.v, k0, 0);
        multiply<T>(parallel, rows, keys, a.dim, block_of(h.q, q0, 0), transposed(k), dense(scores, ld),
                    stairs_of<T>(a, sample, block, Stairs::Of::kColumns));
        softmax<T>(a, item, block, scores, low, h.lse + q0);
        const Matrix y = block_of(h.y, q0, 0);
        multiply<T>(parallel, rows, a.dim, keys, operand(a, scores, rows, ld, low), v, y,
                    stairs_of<T>(a, sample, block, Stairs::Of::kDepth));
        if (leaves_out<T>(a)) without_sign(rows, a.dim, static_cast<T*>(y.data), y.row_stride);
      }
    }
  };
  parallel.run(a.batch * a.heads, 1, body);
}

// Of each row of a block: the sum of the products of its result and that one's gradient. `y`, `dy`: room for one row.
template <class T>
void find_deltas(const AttentionArgs& a, const Head<T>& h, const QueryBlock& block, T* y, T* dy, T* deltas) {
  Lanes<T> lanes[kQueries];
  const auto add = [](T x, T y) { return x + y; };
  for (int64_t r = 0; r < block.rows; ++r) {
    load_run<T>(h.y.data, h.y.dtype, (block.q0 + r) * h.y.row_stride, 1, a.dim, y);
    load_run<T>(h.dy.data, h.dy.dtype, (block.q0 + r) * h.dy.row_stride, 1, a.dim, dy);
    fold_in_lanes<T>(
        a.dim, T(0), [&](int64_t i) { return y[i] * dy[i]; }, add, lanes[r]);
  }
  fold_lanes<T>(block.rows, lanes, add, deltas);
}

// Turns row r of a block's scores into probabilities, those of keys that are dropped times their factor, and row r of
// their products with v into the gradient of the scores. `factors`: room for one row.
template <class T>
void backward_row(const AttentionArgs& a, const Head<T>& h, int64_t item, const QueryBlock& block, int64_t r, T* scores,
                  T* dscores, T delta, T* factors) {
  const auto [q0, rows, k0, keys, ld] = block;
  const T scale = static_cast<T>(a.scale);
  const int64_t sample = item / a.heads, query = q0 + r;
  T *s = scores + r * ld, *d = dscores + r * ld;
  const int64_t before = a.first_key(sample, query) - k0, seen = a.end_key(sample, query) - k0, n = whole_lanes(seen);
  const T lse = h.lse[query];
  if (a.drop_probability > 0) {
    drop_factors(a, item, query, k0 + before, k0 + seen, factors);
    for (int64_t i = before; i < seen; ++i) d[i] *= factors[i - before];
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T p = exp_of(fused(s[i], scale, -lse));
    s[i] = p;
    d[i] = p * (d[i] - delta) * scale;
  }
  if (a.drop_probability > 0)
    for (int64_t i = before; i < seen; ++i) s[i] *= factors[i - before];
  for (int64_t i = 0; i < before; ++i) s[i] = d[i] = T(0);
  for (int64_t i = seen; i < ld; ++i) s[i] = d[i] = T(0);
  if (a.documents)
    for (int64_t i = before; i < seen; ++i)
      if (!a.in_document(sample, query, k0 + i)) s[i] = d[i] = T(0);
}

template <class T>
void backward_in(Parallel& parallel, const AttentionArgs& a) {
  auto body = [&](int64_t begin, int64_t end) {
    const int64_t room = score_room(a), sums = a.key_time() * a.dim, group = a.heads / a.kv_heads;
    T* scores =
        static_cast<T*>(parallel.scratch(kScores, (3 * room + 2 * sums + 2 * a.dim) * static_cast<int64_t>(sizeof(T))));
    T *dscores = scores + room, *dk = dscores + room, *dv = dk + sums, *y = dv + sums, *dy = y + a.dim,
      *low = dy + a.dim;  // a row's factors until the products, then their operand
    for (int64_t item = begin; item < end; ++item) {
      // The last block of queries of the first head sees every key, so going backwards its products set dk and dv, and
      // the others add. Not so with a window, or where keys end early: there all add to 0.
      bool more = a.window > 0 || a.lengths;
      if (more)
        for (int64_t i = 0; i < 2 * sums; ++i) dk[i] = T(0);
      const int64_t blocks = (a.time + kQueries - 1) / kQueries;
      for (int64_t member = 0; member < group; ++member) {
        const Head<T> h = head_of<T>(a, item * group + member);
        for (int64_t b = blocks - 1; b >= 0; --b) {
          const QueryBlock block(a, item / a.kv_heads, b * kQueries);
          const auto [q0, rows, k0, keys, ld] = block;
          const Matrix queries = block_of(h.q, q0, 0), gradient = block_of(h.dy, q0, 0);
          const Matrix k = block_of(h.k, k0, 0), v = block_of(h.v, k0, 0);
          const int64_t sample = item / a.kv_heads;
          const Stairs columns = stairs_of<T>(a, sample, block, Stairs::Of::kColumns),
                       depth = stairs_of<T>(a, sample, block, Stairs::Of::kDepth),
                       late = stairs_of<T>(a, sample, block, Stairs::Of::kLateDepth);
          multiply<T>(parallel, rows, keys, a.dim, queries, transposed(k), dense(scores, ld), columns);
          multiply<T>(parallel, rows, keys, a.dim, gradient, transposed(v), dense(dscores, ld), columns);
          T deltas[kQueries];
          find_deltas(a, h, block, y, dy, deltas);
          for (int64_t r = 0; r < rows; ++r)
            backward_row<T>(a, h, item * group + member, block, r, scores, dscores, deltas[r], low);
          const Matrix p = operand(a, scores, rows, ld, low);
          multiply<T>(parallel, keys, a.dim, rows, transposed(p), gradient, dense(dv + k0 * a.dim, a.dim), late, more);
          const Matrix d = operand(a, dscores, rows, ld, low);
          multiply<T>(parallel, keys, a.dim, rows, transposed(d), queries, dense(dk + k0 * a.dim, a.dim), late, more);
          const Matrix dq = block_of(h.dq, q0, 0);
          multiply<T>(parallel, rows, a.dim, keys, d, k, dq, depth);
          if (leaves_out<T>(a)) without_sign(rows, a.dim, static_cast<T*>(dq.data), dq.row_stride);
          more = true;
        }
      }
      if (leaves_out<T>(a)) without_sign(2 * a.key_time(), a.dim, dk, a.dim);
      const Head<T> h = head_of<T>(a, item * group);
      for (int64_t t = 0; t < a.key_time(); ++t) {
        store_run<T>(h.dk.data, h.dk.dtype, t * h.dk.row_stride, 1, a.dim, dk + t * a.dim);
        store_run<T>(h.dv.data, h.dv.dtype, t * h.dv.row_stride, 1, a.dim, dv + t * a.dim);
      }
    }
  };
  parallel.run(a.batch * a.kv_heads, 1, body);
}

}  // namespace

void attention(Parallel& parallel, const AttentionArgs& a) {
  a.dtype == DType::kFloat64 ? forward_in<double>(parallel, a) : forward_in<float>(parallel, a);
}
void attention_backward(Parallel& parallel, const AttentionArgs& a) {
  a.dtype == DType::kFloat64 ? backward_in<double>(parallel, a) : backward_in<float>(parallel, a);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
