#include "core/device/cuda/kernels/tiled_attention.h"

#include "core/device/cuda/kernels/launch.h"
#include "core/kernels/attention/attention_dropout.h"
#include "core/kernels/attention/score_cap.h"
#include "core/kernels/stage.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;

// One head of one sample: row t, below `time`, is the `dim` elements of `data` from `from + t * step` on.
struct Rows {
  void* data = nullptr;
  int64_t from = 0, step = 0, time = 0;
};
// `item`: of [batch, heads].
HD inline Rows query_rows(const AttentionArgs& a, const HeadRows& rows, int64_t item) {
  return {rows.data, item / a.heads * a.time * rows.stride + item % a.heads * a.dim, rows.stride, a.time};
}
HD inline Rows plain_rows(const AttentionArgs& a, void* data, int64_t item) {
  return query_rows(a, {data, a.heads * a.dim}, item);
}
// Of the keys or values that a head of queries sees.
HD inline Rows key_rows(const AttentionArgs& a, const HeadRows& rows, int64_t item) {
  const int64_t sample = item / a.heads, head = item % a.heads / (a.heads / a.kv_heads), time = a.key_time();
  return {rows.data, sample * time * rows.stride + head * a.dim, rows.stride, time};
}
// Whether a query sees a key; both may lie past the end.
HD inline bool sees(const AttentionArgs& a, int64_t sample, int64_t query, int64_t key) {
  return query < a.time && key < a.end_key(sample, query) && key >= a.first_key(sample, query) &&
         a.in_document(sample, query, key);
}
// The first tile of keys that one of the queries from q0 on sees.
HD inline int64_t first_tile(const AttentionArgs& a, int64_t sample, int64_t q0, int keys) {
  return a.first_key(sample, q0) / keys * keys;
}

// Extents of the tiles; they follow from the head's size and type alone, and so does the order of every sum.
struct Tiles {
  int queries = 32, keys = 32;
};

// Shared memory of a block, handed out piece by piece. A row of a tile whose rows are read side by side by neighbouring
// threads is one element longer than the head, so that they fall into different banks.
template <class T>
class Shared {
 public:
  HD explicit Shared(T* memory) : at_(memory) {}
  HD T* take(int64_t n) {
    T* mine = at_ + used_;
    used_ += n;
    return mine;
  }
  HD int64_t used() const { return used_; }

 private:
  T* at_;
  int64_t used_ = 0;
};

// [rows, dim] at `to`, rows `stride` apart; rows past the end of the sequence are zero.
template <class T>
__device__ void load_tile(const AttentionArgs& a, Rows rows, int64_t first, int count, T* to, int64_t stride) {
  const int dim = static_cast<int>(a.dim);
  for (int i = threadIdx.x; i < count * dim; i += blockDim.x) {
    const int r = i / dim, d = i % dim;
    const int64_t t = first + r;
    to[r * stride + d] = t < rows.time ? load_element<T>(rows.data, a.dtype, rows.from + t * rows.step + d) : T(0);
  }
}

template <class T>
__device__ void store_tile(const AttentionArgs& a, Rows rows, int64_t first, int count, const T* from) {
  const int dim = static_cast<int>(a.dim);
  for (int i = threadIdx.x; i < count * dim; i += blockDim.x) {
    const int64_t t = first + i / dim;
    if (t < rows.time) store_element<T>(rows.data, a.dtype, rows.from + t * rows.step + i % dim, from[i]);
  }
}

template <class T>
__device__ T dot(const T* x, const T* y, int n) {
  T sum = T(0);
  for (int i = 0; i < n; ++i) sum = fused(x[i], y[i], sum);
  return sum;
}

template <class T>
struct ForwardMemory {
  T *q, *k, *v, *y, *scores, *max, *sum, *factor;
  HD ForwardMemory(Shared<T>& shared, Tiles tiles, int64_t dim) {
    q = shared.take(tiles.queries * (dim + 1));
    k = shared.take(tiles.keys * (dim + 1));
    v = shared.take(tiles.keys * dim);
    y = shared.take(tiles.queries * dim);
    scores = shared.take(tiles.queries * (tiles.keys + 1));
    max = shared.take(tiles.queries);
    sum = shared.take(tiles.queries);
    factor = shared.take(tiles.queries);
  }
};

// A block owns a tile of queries and walks over the keys, its softmax kept up to date with the largest score so far.
template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(AttentionArgs a, Tiles tiles) {
  __shared__ double memory[Grid::kMostShared / sizeof(double)];
  Shared<T> shared(reinterpret_cast<T*>(memory));
  const ForwardMemory<T> m(shared, tiles, a.dim);
  const int dim = static_cast<int>(a.dim), R = tiles.queries, K = tiles.keys, lane = threadIdx.x;
  const int64_t blocks = (a.time + R - 1) / R, item = blockIdx.x / blocks;
  const int64_t q0 = (blocks - 1 - blockIdx.x % blocks) * R;  // those with most keys start first
  const T scale = scale_of_scores<T>(a);

  load_tile(a, query_rows(a, a.q, item), q0, R, m.q, dim + 1);
  for (int i = lane; i < R * dim; i += blockDim.x) m.y[i] = T(0);
  for (int r = lane; r < R; r += blockDim.x) m.max[r] = T(-INFINITY), m.sum[r] = T(0);
  const int64_t sample = item / a.heads, end = a.end_key(sample, q0 + R < a.time ? q0 + R - 1 : a.time - 1);
  for (int64_t k0 = first_tile(a, sample, q0, K); k0 < end; k0 += K) {
    load_tile(a, key_rows(a, a.k, item), k0, K, m.k, dim + 1);
    load_tile(a, key_rows(a, a.v, item), k0, K, m.v, dim);
    __syncthreads();
    for (int i = lane; i < R * K; i += blockDim.x) {
      const int r = i / K, j = i % K;
      T s = T(-INFINITY);
      if (sees(a, sample, q0 + r, k0 + j)) {
        s = dot(m.q + r * (dim + 1), m.k + j * (dim + 1), dim);
        if (a.score_cap > 0) s = ScoreCap<T>(a)(s);
      }
      m.scores[r * (K + 1) + j] = s;
    }
    __syncthreads();
    for (int r = lane; r < R; r += blockDim.x) {
      T max = m.max[r];
      for (int j = 0; j < K; ++j) {
        const T s = m.scores[r * (K + 1) + j];
        max = s > max ? s : max;
      }
      // Infinite until a tile has a key that the row sees.
      m.factor[r] = m.max[r] == T(-INFINITY) ? T(0) : exp_of((m.max[r] - max) * scale);
      m.max[r] = max;
    }
    __syncthreads();
    for (int i = lane; i < R * K; i += blockDim.x) {
      const int r = i / K, at = r * (K + 1) + i % K;
      const T s = m.scores[at];
      m.scores[at] = s == T(-INFINITY) ? T(0) : exp_of((s - m.max[r]) * scale);
    }
    __syncthreads();
    for (int r = lane; r < R; r += blockDim.x) {
      T sum = m.sum[r] * m.factor[r];
      for (int j = 0; j < K; ++j) sum += m.scores[r * (K + 1) + j];
      m.sum[r] = sum;
    }
    if (a.drop_probability > 0) {
      __syncthreads();
      for (int i = lane; i < R * K; i += blockDim.x)
        if (T& s = m.scores[i / K * (K + 1) + i % K]; s != T(0))
          s *= static_cast<T>(DropFactors(a, item, q0 + i / K)(k0 + i % K));
      __syncthreads();
    }
    for (int i = lane; i < R * dim; i += blockDim.x) {
      const int r = i / dim, d = i % dim;
      T y = m.y[i] * m.factor[r];
      for (int j = 0; j < K; ++j) y = fused(m.scores[r * (K + 1) + j], m.v[j * dim + d], y);
      m.y[i] = y;
    }
    __syncthreads();
  }
  for (int i = lane; i < R * dim; i += blockDim.x) m.y[i] = m.y[i] / m.sum[i / dim];
  for (int r = lane; r < R; r += blockDim.x)
    if (q0 + r < a.time) static_cast<T*>(a.lse)[item * a.time + q0 + r] = fused(m.max[r], scale, log_of(m.sum[r]));
  __syncthreads();
  store_tile(a, plain_rows(a, a.y, item), q0, R, m.y);
}

// delta[item, t] = y . dy, a thread a row.
template <class T>
__global__ void __launch_bounds__(kThreads) delta_kernel(AttentionArgs a, T* delta) {
  const int64_t rows = a.batch * a.heads * a.time, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows; i += step) {
    const Rows r = plain_rows(a, nullptr, i / a.time);
    const int64_t at = r.from + i % a.time * r.step;
    T sum = T(0);
    for (int64_t d = 0; d < a.dim; ++d)
      sum = fused(load_element<T>(a.y, a.dtype, at + d), load_element<T>(a.dy, a.dtype, at + d), sum);
    delta[i] = sum;
  }
}

// What both backward kernels hold: a tile of queries and one of keys, the probabilities and the gradients of the
// scores.
template <class T>
struct BackwardMemory {
  T *q, *dy, *k, *v, *p, *ds, *lse, *delta;
  HD BackwardMemory(Shared<T>& shared, Tiles tiles, int64_t dim) {
    q = shared.take(tiles.queries * (dim + 1));
    dy = shared.take(tiles.queries * (dim + 1));
    k = shared.take(tiles.keys * (dim + 1));
    v = shared.take(tiles.keys * (dim + 1));
    p = shared.take(tiles.queries * (tiles.keys + 1));
    ds = shared.take(tiles.queries * (tiles.keys + 1));
    lse = shared.take(tiles.queries);
    delta = shared.take(tiles.queries);
  }

  __device__ void load_queries(const AttentionArgs& a, int64_t item, int64_t q0, Tiles tiles, const T* deltas) const {
    load_tile(a, query_rows(a, a.q, item), q0, tiles.queries, q, a.dim + 1);
    load_tile(a, plain_rows(a, a.dy, item), q0, tiles.queries, dy, a.dim + 1);
    for (int r = threadIdx.x; r < tiles.queries; r += blockDim.x) {
      const bool there = q0 + r < a.time;
      const int64_t at = item * a.time + q0 + r;
      lse[r] = there ? static_cast<const T*>(a.lse)[at] : T(0);
      delta[r] = there ? deltas[at] : T(0);
    }
  }
  __device__ void load_keys(const AttentionArgs& a, int64_t item, int64_t k0, Tiles tiles) const {
    load_tile(a, key_rows(a, a.k, item), k0, tiles.keys, k, a.dim + 1);
    load_tile(a, key_rows(a, a.v, item), k0, tiles.keys, v, a.dim + 1);
  }
  // p, as it multiplies the values, and ds of the tiles that are loaded; 0 where a query does not see a key, or either
  // is past the end.
  __device__ void scores(const AttentionArgs& a, int64_t item, int64_t q0, int64_t k0, Tiles tiles) const {
    const int dim = static_cast<int>(a.dim), K = tiles.keys;
    const bool capped = a.score_cap > 0;
    for (int i = threadIdx.x; i < tiles.queries * K; i += blockDim.x) {
      const int r = i / K, j = i % K, at = r * (K + 1) + j;
      p[at] = ds[at] = T(0);
      if (!sees(a, item / a.heads, q0 + r, k0 + j)) continue;
      const T s = dot(q + r * (dim + 1), k + j * (dim + 1), dim);
      T dp = dot(dy + r * (dim + 1), v + j * (dim + 1), dim);
      T slope = static_cast<T>(a.scale);  // of the score, by the product
      if (capped) {
        const ScoreCap<T> cap(a);
        const T t = cap.tanh_at(s);
        p[at] = exp_of(fused(t, cap.cap, -lse[r]));
        slope *= fused(-t, t, T(1));
      } else {
        p[at] = exp_of(fused(s, slope, -lse[r]));
      }
      if (a.drop_probability > 0) {
        const T factor = static_cast<T>(DropFactors(a, item, q0 + r)(k0 + j));
        dp *= factor;
        ds[at] = p[at] * (dp - delta[r]) * slope;
        p[at] *= factor;
        continue;
      }
      ds[at] = p[at] * (dp - delta[r]) * slope;
    }
  }
};

template <class T>
struct QueryGradientMemory : BackwardMemory<T> {
  T* dq;
  HD QueryGradientMemory(Shared<T>& shared, Tiles tiles, int64_t dim) : BackwardMemory<T>(shared, tiles, dim) {
    dq = shared.take(tiles.queries * dim);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) query_gradient_kernel(AttentionArgs a, Tiles tiles, const T* deltas) {
  __shared__ double memory[Grid::kMostShared / sizeof(double)];
  Shared<T> shared(reinterpret_cast<T*>(memory));
  const QueryGradientMemory<T> m(shared, tiles, a.dim);
  const int dim = static_cast<int>(a.dim), R = tiles.queries, K = tiles.keys;
  const int64_t blocks = (a.time + R - 1) / R, item = blockIdx.x / blocks;
  const int64_t q0 = (blocks - 1 - blockIdx.x % blocks) * R;
  m.load_queries(a, item, q0, tiles, deltas);
  for (int i = threadIdx.x; i < R * dim; i += blockDim.x) m.dq[i] = T(0);
  const int64_t sample = item / a.heads, end = a.end_key(sample, q0 + R < a.time ? q0 + R - 1 : a.time - 1);
  for (int64_t k0 = first_tile(a, sample, q0, K); k0 < end; k0 += K) {
    m.load_keys(a, item, k0, tiles);
    __syncthreads();
    m.scores(a, item, q0, k0, tiles);
    __syncthreads();
    for (int i = threadIdx.x; i < R * dim; i += blockDim.x) {
      const int r = i / dim, d = i % dim;
      T sum = m.dq[i];
      for (int j = 0; j < K; ++j) sum = fused(m.ds[r * (K + 1) + j], m.k[j * (dim + 1) + d], sum);
      m.dq[i] = sum;
    }
    __syncthreads();
  }
  store_tile(a, query_rows(a, a.dq, item), q0, R, m.dq);
}

template <class T>
struct KeyGradientMemory : BackwardMemory<T> {
  T *dk, *dv;
  HD KeyGradientMemory(Shared<T>& shared, Tiles tiles, int64_t dim) : BackwardMemory<T>(shared, tiles, dim) {
    dk = shared.take(tiles.keys * dim);
    dv = shared.take(tiles.keys * dim);
  }
};

// A block owns a tile of a head's keys and walks over the queries that see one of them, in each head that shares them.
template <class T>
__global__ void __launch_bounds__(kThreads) key_gradient_kernel(AttentionArgs a, Tiles tiles, const T* deltas) {
  __shared__ double memory[Grid::kMostShared / sizeof(double)];
  Shared<T> shared(reinterpret_cast<T*>(memory));
  const KeyGradientMemory<T> m(shared, tiles, a.dim);
  const int dim = static_cast<int>(a.dim), R = tiles.queries, K = tiles.keys;
  const int64_t blocks = (a.key_time() + K - 1) / K, k0 = blockIdx.x % blocks * K, group = a.heads / a.kv_heads;
  const int64_t item = blockIdx.x / blocks * group;  // the first of the heads of queries
  const int64_t end = a.window > 0 && k0 + K - 1 + a.window < a.time ? k0 + K - 1 + a.window : a.time;
  m.load_keys(a, item, k0, tiles);
  for (int i = threadIdx.x; i < K * dim; i += blockDim.x) m.dk[i] = m.dv[i] = T(0);
  for (int64_t member = 0; member < group; ++member)
    for (int64_t q0 = a.causal ? k0 / R * R : 0; q0 < end; q0 += R) {
      m.load_queries(a, item + member, q0, tiles, deltas);
      __syncthreads();
      m.scores(a, item + member, q0, k0, tiles);
      __syncthreads();
      for (int i = threadIdx.x; i < K * dim; i += blockDim.x) {
        const int j = i / dim, d = i % dim;
        T dk = m.dk[i], dv = m.dv[i];
        for (int r = 0; r < R; ++r) {
          dk = fused(m.ds[r * (K + 1) + j], m.q[r * (dim + 1) + d], dk);
          dv = fused(m.p[r * (K + 1) + j], m.dy[r * (dim + 1) + d], dv);
        }
        m.dk[i] = dk, m.dv[i] = dv;
      }
      __syncthreads();
    }
  store_tile(a, key_rows(a, a.dk, item), k0, K, m.dk);
  store_tile(a, key_rows(a, a.dv, item), k0, K, m.dv);
}

// The largest tiles whose memory a block has.
template <class Memory, class T>
Tiles tiles_for(int64_t dim) {
  for (Tiles tiles; tiles.queries > 0; tiles.queries /= 2, tiles.keys /= 2) {
    Shared<T> shared(nullptr);
    Memory(shared, tiles, dim);
    if (shared.used() * static_cast<int64_t>(sizeof(T)) <= Grid::kMostShared) return tiles;
  }
  throw Error(ExitCode::kConfig, str("attention: heads of ", dim, " elements in ", kTypeOf<T>,
                                     " do not fit into a GPU's shared memory; use more heads, or bf16"));
}

// For tiles of so many of `time` positions, in each head of each sample.
int64_t blocks_of(const AttentionArgs& a, int64_t heads, int64_t time, int64_t rows) {
  return a.batch * heads * ((time + rows - 1) / rows);
}

template <class T>
void forward(CudaQueue& queue, const AttentionArgs& a) {
  const Tiles tiles = tiles_for<ForwardMemory<T>, T>(a.dim);
  launch(forward_kernel<T>, queue, blocks_of(a, a.heads, a.time, tiles.queries), kThreads, a, tiles);
}

template <class T>
void backward(CudaQueue& queue, const AttentionArgs& a) {
  const int64_t rows = a.batch * a.heads * a.time;
  T* const deltas = static_cast<T*>(queue.scratch_memory(0, rows * static_cast<int64_t>(sizeof(T))));
  launch(delta_kernel<T>, queue, blocks_for(queue, rows, kThreads), kThreads, a, deltas);
  const Tiles dq = tiles_for<QueryGradientMemory<T>, T>(a.dim), dk = tiles_for<KeyGradientMemory<T>, T>(a.dim);
  launch(query_gradient_kernel<T>, queue, blocks_of(a, a.heads, a.time, dq.queries), kThreads, a, dq, deltas);
  launch(key_gradient_kernel<T>, queue, blocks_of(a, a.kv_heads, a.key_time(), dk.keys), kThreads, a, dk, deltas);
}

bool is_empty(const AttentionArgs& a) { return a.batch * a.time * a.heads * a.dim == 0; }

}  // namespace

void tiled_attention(Parallel& queue, const AttentionArgs& a) {
  if (is_empty(a)) return;
  a.dtype == DType::kFloat64 ? forward<double>(cuda_queue(queue), a) : forward<float>(cuda_queue(queue), a);
}
void tiled_attention_backward(Parallel& queue, const AttentionArgs& a) {
  if (is_empty(a)) return;
  a.dtype == DType::kFloat64 ? backward<double>(cuda_queue(queue), a) : backward<float>(cuda_queue(queue), a);
}

}  // namespace lockstep::cuda
