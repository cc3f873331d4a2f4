// Attention, tiled over queries: the scores of one block of rows at a time, so that memory grows linearly with
// the sequence length; the backward pass recomputes them from the saved log-sum-exp. After Dao et al., "FlashAttention"
// (2022). A head of a sample is one task, in the backward pass a head of keys with the heads of queries that share it:
// sums over query blocks run in order, whatever the threads.
#include <limits>

#include "core/kernels/attention/attention_dropout.h"
#include "core/kernels/attention/score_cap.h"
#include "core/kernels/gemm/gemm_serial.h"
#include "core/kernels/row_lanes.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int64_t kQueries = 64;  // rows of scores held at once

// Elements from one row of scores to the next: whole lanes, of which an odd number keeps rows from sharing sets of a
// cache where products read them across. In bf16 products read a copy.
int64_t row_of_scores(const AttentionArgs& a, int64_t keys) {
  return a.dtype == DType::kBFloat16 ? whole_lanes(keys) : whole_lanes(keys) | kLanes;
}
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
        ld(row_of_scores(a, keys)) {}
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
  return kQueries * row_of_scores(a, keys < all ? keys : all);
}

inline Matrix transposed(const Matrix& m) { return {m.data, m.dtype, m.col_stride, m.row_stride, m.batch_stride}; }

template <class T>
void multiply(Parallel& p, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, Matrix c, const Stairs& stairs,
              const PackedMatrix<T>& packed = {}, bool accumulate = false) {
  GemmArgs g;
  g.m = m, g.n = n, g.k = k, g.a = a, g.b = b, g.c = c, g.accumulate = accumulate;
  gemm_serial<T>(p, g, stairs, packed);
}

// Whether keys and values of a head are packed once, where several blocks of queries multiply them. Not with a window:
// there the keys of a block need not begin with key 0, where the packed ones do.
template <class T>
bool packs_keys(const AttentionArgs& a) {
  return a.dtype == kTypeOf<T> && a.window == 0 && a.time > kQueries;
}
// The most elements that one of them takes.
template <class T>
int64_t packed_room(const AttentionArgs& a) {
  if (!packs_keys<T>(a)) return 0;
  const int64_t across = packed_size<T>(kTypeOf<T>, a.dim, a.key_time()),
                along = packed_size<T>(kTypeOf<T>, a.key_time(), a.dim);
  return across > along ? across : along;
}
// The keys or values that queries of the sample see, packed as B of products: across, [dim, keys], for those that give
// scores; else [keys, dim], for those that scores are multiplied by.
template <class T>
PackedMatrix<T> packed_keys(const AttentionArgs& a, int64_t sample, const Matrix& keys, bool across, T* out) {
  if (!packs_keys<T>(a)) return {};
  const int64_t seen = a.end_key(sample, a.time - 1);
  return across ? pack_matrix<T>(transposed(keys), a.dim, seen, out) : pack_matrix<T>(keys, seen, a.dim, out);
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

template <class T>
void cap_scores(const ScoreCap<T>& cap, int64_t n, T* s) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) s[i] = cap(s[i]);
}

// Turns a block's scores into probabilities, of dropped keys 0 and of the others times their factor; `lse`: of its
// rows. In passes over all rows, so that what a row waits for is done meanwhile. `room`: for one row.
template <class T>
void softmax(const AttentionArgs& a, int64_t item, const QueryBlock& block, T* scores, void* room, T* lse) {
  const auto [q0, rows, k0, keys, ld] = block;
  const T scale = scale_of_scores<T>(a);
  const int64_t sample = item / a.heads;
  T max[kQueries], sum[kQueries], inverse[kQueries];
  int64_t before[kQueries], seen[kQueries];
#pragma GCC ivdep
  for (int64_t r = 0; r < rows; ++r)
    before[r] = a.first_key(sample, q0 + r) - k0, seen[r] = a.end_key(sample, q0 + r) - k0;
  const auto largest = [&](int64_t r) {
    T* s = scores + r * ld;
    if (a.score_cap > 0) cap_scores(ScoreCap<T>(a), seen[r], s);
    // Keys that it does not see have no weight: so a row is folded in whole lanes.
    const int64_t n = whole_lanes(seen[r]);
    for (int64_t i = 0; i < before[r]; ++i) s[i] = -std::numeric_limits<T>::infinity();
    fill_lanes(s, seen[r], -std::numeric_limits<T>::infinity());
    if (a.documents)
      for (int64_t i = before[r]; i < seen[r]; ++i)
        if (!a.in_document(sample, q0 + r, k0 + i)) s[i] = -std::numeric_limits<T>::infinity();
    auto most = LaneVectors<T>::load(s);
    for (int64_t i = kLanes; i < n; i += kLanes) most.join(kLarger, LaneVectors<T>::load(s + i));
    return most;
  };
  fold_each(rows, largest, kLarger, max);
  const auto exponentials = [&](int64_t r) {
    T* s = scores + r * ld;
    const auto most = Simd<T>::all(max[r]), scales = Simd<T>::all(scale);
    auto sums = LaneVectors<T>::all(T(0));
    for (int64_t i = 0; i < whole_lanes(seen[r]); i += kLanes) {
      auto e = LaneVectors<T>::load(s + i);
      e.apply([&](auto x) { return exp_of_vector<false>((x - most) * scales); });
      e.store(s + i);
      sums.join(kAdd, e);
    }
    return sums;
  };
  fold_each(rows, exponentials, kAdd, sum);
#pragma GCC ivdep
  for (int64_t r = 0; r < rows; ++r) inverse[r] = T(1) / sum[r], lse[r] = max[r] * scale + log_of(sum[r]);
  const auto zero = LaneVectors<T>::all(T(0));
  for (int64_t r = 0; r < rows; ++r) {
    T* s = scores + r * ld;
    const int64_t n = whole_lanes(seen[r]);
    const auto factor = Simd<T>::all(inverse[r]);
    for (int64_t i = 0; i < n; i += kLanes) {
      auto p = LaneVectors<T>::load(s + i);
      p.apply([&](auto x) { return x * factor; });
      p.store(s + i);
    }
    for (int64_t i = n; i < ld; i += kLanes) zero.store(s + i);
    if (a.drop_probability > 0) {
      T* const factors = static_cast<T*>(room);
      drop_factors(a, item, q0 + r, k0 + before[r], k0 + seen[r], factors);
      for (int64_t i = before[r]; i < seen[r]; ++i) s[i] *= factors[i - before[r]];
    }
  }
}

template <class T>
void forward_in(Parallel& parallel, const AttentionArgs& a) {
  auto body = [&](int64_t begin, int64_t end) {
    const int64_t room = score_room(a), of_keys = packed_room<T>(a), group = a.heads / a.kv_heads;
    T* scores =
        static_cast<T*>(parallel.scratch(kScores, (room + 2 * of_keys) * static_cast<int64_t>(sizeof(T)) + room * 2));
    T *k_across = scores + room, *v_along = k_across + of_keys;
    void* low = v_along + of_keys;
    PackedMatrix<T> packed_k, packed_v;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t sample = item / a.heads;
      const Head<T> h = head_of<T>(a, item);
      if (item == begin || item % group == 0) {
        packed_k = packed_keys<T>(a, sample, h.k, true, k_across);
        packed_v = packed_keys<T>(a, sample, h.v, false, v_along);
      }
      for (int64_t from = 0; from < a.time; from += QueryBlock::rows_from(a, sample, from)) {
        const QueryBlock block(a, sample, from);
        const auto [q0, rows, k0, keys, ld] = block;
        const Matrix k = block_of(h.k, k0, 0), v = block_of(h.v, k0, 0);
        multiply<T>(parallel, rows, keys, a.dim, block_of(h.q, q0, 0), transposed(k), dense(scores, ld),
                    stairs_of<T>(a, sample, block, Stairs::Of::kColumns), packed_k);
        softmax<T>(a, item, block, scores, low, h.lse + q0);
        const Matrix y = block_of(h.y, q0, 0);
        multiply<T>(parallel, rows, a.dim, keys, operand(a, scores, rows, ld, low), v, y,
                    stairs_of<T>(a, sample, block, Stairs::Of::kDepth), packed_v);
        if (leaves_out<T>(a)) without_sign(rows, a.dim, static_cast<T*>(y.data), y.row_stride);
      }
    }
  };
  parallel.run(a.batch * a.heads, 1, body);
}

// Of each row of a block: the sum of the products of its result and that one's gradient. `y`, `dy`: room for one row.
template <class T>
void find_deltas(const AttentionArgs& a, const Head<T>& h, const QueryBlock& block, T* y, T* dy, T* deltas) {
  const auto row = [&](const Matrix& m, int64_t r, T* room) -> const T* {
    const int64_t at = (block.q0 + r) * m.row_stride;
    if (m.dtype == kTypeOf<T>) return static_cast<const T*>(m.data) + at;
    load_run<T>(m.data, m.dtype, at, 1, a.dim, room);
    return room;
  };
  const auto products = [&](int64_t r) { return lanes_of_products(a.dim, row(h.y, r, y), row(h.dy, r, dy)); };
  fold_each(block.rows, products, kAdd, deltas);
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
  if (a.score_cap > 0) {
    const ScoreCap<T> cap(a);
#pragma GCC ivdep
    for (int64_t i = 0; i < seen; ++i) {
      const T t = cap.tanh_at(s[i]), p = exp_of(fused(t, cap.cap, -lse));
      s[i] = p;
      d[i] = p * (d[i] - delta) * (fused(-t, t, T(1)) * scale);
    }
  } else {
    using S = Simd<T>;
    const auto scales = S::all(scale), less = S::all(-lse), deltas = S::all(delta);
    for (int64_t i = 0; i < n; i += S::kLanes) {
      const auto p = exp_of_vector<true>(fused_vectors<T>(S::load(s + i), scales, less));
      S::store(s + i, p);
      S::store(d + i, p * (S::load(d + i) - deltas) * scales);
    }
  }
  if (a.drop_probability > 0)
    for (int64_t i = before; i < seen; ++i) s[i] *= factors[i - before];
  for (int64_t i = 0; i < before; ++i) s[i] = d[i] = T(0);
  for (int64_t i = seen; i < ld; ++i) s[i] = d[i] = T(0);
  if (a.documents)
    for (int64_t i = before; i < seen; ++i)
      if (!a.in_document(sample, query, k0 + i)) s[i] = d[i] = T(0);
}

// Sets the gradients of all keys of a head.
template <class T>
void set_to_zero(const AttentionArgs& a, const Matrix& rows) {
  for (int64_t t = 0; t < a.key_time(); ++t)
    for (int64_t i = 0; i < a.dim; ++i) static_cast<T*>(rows.data)[t * rows.row_stride + i] = T(0);
}

template <class T>
void backward_in(Parallel& parallel, const AttentionArgs& a) {
  auto body = [&](int64_t begin, int64_t end) {
    const bool direct = a.dtype == kTypeOf<T>;  // sums over queries are where the results go
    const int64_t room = score_room(a), sums = direct ? 0 : a.key_time() * a.dim, of_keys = packed_room<T>(a),
                  group = a.heads / a.kv_heads;
    T* scores = static_cast<T*>(
        parallel.scratch(kScores, (3 * room + 2 * sums + 3 * of_keys + 2 * a.dim) * static_cast<int64_t>(sizeof(T))));
    T *dscores = scores + room, *dk = dscores + room, *dv = dk + sums, *k_across = dv + sums,
      *v_across = k_across + of_keys, *k_along = v_across + of_keys, *y = k_along + of_keys, *dy = y + a.dim,
      *low = dy + a.dim;  // a row's factors until the products, then their operand
    for (int64_t item = begin; item < end; ++item) {
      // The last block of queries of the first head sees every key, so going backwards its products set dk and dv, and
      // the others add. Not so with a window, or where keys end early: there all add to 0.
      bool more = a.window > 0 || a.lengths;
      const int64_t sample = item / a.kv_heads, blocks = (a.time + kQueries - 1) / kQueries;
      const Head<T> first = head_of<T>(a, item * group);
      const auto packed_k = packed_keys<T>(a, sample, first.k, true, k_across),
                 packed_v = packed_keys<T>(a, sample, first.v, true, v_across),
                 packed_k_along = packed_keys<T>(a, sample, first.k, false, k_along);
      const Matrix sum_k = direct ? first.dk : dense(dk, a.dim), sum_v = direct ? first.dv : dense(dv, a.dim);
      if (more) set_to_zero<T>(a, sum_k), set_to_zero<T>(a, sum_v);
      for (int64_t member = 0; member < group; ++member) {
        const Head<T> h = head_of<T>(a, item * group + member);
        for (int64_t b = blocks - 1; b >= 0; --b) {
          const QueryBlock block(a, sample, b * kQueries);
          const auto [q0, rows, k0, keys, ld] = block;
          const Matrix queries = block_of(h.q, q0, 0), gradient = block_of(h.dy, q0, 0);
          const Matrix k = block_of(h.k, k0, 0), v = block_of(h.v, k0, 0);
          const Stairs columns = stairs_of<T>(a, sample, block, Stairs::Of::kColumns),
                       depth = stairs_of<T>(a, sample, block, Stairs::Of::kDepth),
                       late = stairs_of<T>(a, sample, block, Stairs::Of::kLateDepth);
          multiply<T>(parallel, rows, keys, a.dim, queries, transposed(k), dense(scores, ld), columns, packed_k);
          multiply<T>(parallel, rows, keys, a.dim, gradient, transposed(v), dense(dscores, ld), columns, packed_v);
          T deltas[kQueries];
          find_deltas(a, h, block, y, dy, deltas);
          for (int64_t r = 0; r < rows; ++r)
            backward_row<T>(a, h, item * group + member, block, r, scores, dscores, deltas[r], low);
          const Matrix p = operand(a, scores, rows, ld, low);
          multiply<T>(parallel, keys, a.dim, rows, transposed(p), gradient, block_of(sum_v, k0, 0), late, {}, more);
          const Matrix d = operand(a, dscores, rows, ld, low);
          multiply<T>(parallel, keys, a.dim, rows, transposed(d), queries, block_of(sum_k, k0, 0), late, {}, more);
          const Matrix dq = block_of(h.dq, q0, 0);
          multiply<T>(parallel, rows, a.dim, keys, d, k, dq, depth, packed_k_along);
          if (leaves_out<T>(a)) without_sign(rows, a.dim, static_cast<T*>(dq.data), dq.row_stride);
          more = true;
        }
      }
      if (leaves_out<T>(a)) {
        without_sign(a.key_time(), a.dim, static_cast<T*>(sum_k.data), sum_k.row_stride);
        without_sign(a.key_time(), a.dim, static_cast<T*>(sum_v.data), sum_v.row_stride);
      }
      for (int64_t t = 0; !direct && t < a.key_time(); ++t) {
        store_run<T>(first.dk.data, first.dk.dtype, t * first.dk.row_stride, 1, a.dim, dk + t * a.dim);
        store_run<T>(first.dv.data, first.dv.dtype, t * first.dv.row_stride, 1, a.dim, dv + t * a.dim);
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
