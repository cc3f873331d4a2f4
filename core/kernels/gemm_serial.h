// The matrix product of one thread: panels of B packed for the register tile, rows of A read in place (or packed, where
// strided), both converted on the way where of another type, k cut into fixed blocks. Loop structure after Goto and van
// de Geijn, "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 2008) and BLIS. Stateless; scratch slots 0
// and 1 of the calling thread. Every element of C is one chain of multiply-adds over k in order: neither m, n, threads
// nor edges change its bits.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"
#include "core/kernels/simd.h"
#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {

enum class Start { kZero, kAccumulate, kBias };

template <class T>
struct GemmTile {
  static constexpr int kRows = Simd<T>::kRows, kVectors = 2, kCols = Simd<T>::kLanes * kVectors;
  static constexpr int64_t kDepth = 384;  // k block: a panel of B stays in the first-level cache
  static constexpr int64_t kWide = 512 / kCols * kCols, kTall = kRows * 16;
};

// C[M, kCols] tile; element (i, k) of A at a[i * rs + k * ks], B packed [depth, kCols].
template <class T, int M>
void gemm_tile(int64_t depth, const T* a, int64_t rs, int64_t ks, const T* b, T* c, int64_t ldc, Start start,
               const T* bias) {
  using S = Simd<T>;
  constexpr int N = GemmTile<T>::kVectors, L = S::kLanes;
  typename S::V acc[M][N];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j)
      acc[i][j] = start == Start::kZero   ? S::all(T(0))
                  : start == Start::kBias ? S::load(bias + j * L)
                                          : S::load(c + i * ldc + j * L);
  for (int64_t k = 0; k < depth; ++k) {
    typename S::V bv[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) bv[j] = S::load(b + k * (N * L) + j * L);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const typename S::V av = S::all(a[i * rs + k * ks]);
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) acc[i][j] = S::mul_add(av, bv[j], acc[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) S::store(c + i * ldc + j * L, acc[i][j]);
}

template <class T>
inline void gemm_tile_of(int rows, int64_t depth, const T* a, int64_t rs, int64_t ks, const T* b, T* c, int64_t ldc,
                         Start start, const T* bias) {
  using Tile = void (*)(int64_t, const T*, int64_t, int64_t, const T*, T*, int64_t, Start, const T*);
  if constexpr (GemmTile<T>::kRows == 14) {
    static constexpr Tile tiles[] = {nullptr,          gemm_tile<T, 1>,  gemm_tile<T, 2>,  gemm_tile<T, 3>,
                                     gemm_tile<T, 4>,  gemm_tile<T, 5>,  gemm_tile<T, 6>,  gemm_tile<T, 7>,
                                     gemm_tile<T, 8>,  gemm_tile<T, 9>,  gemm_tile<T, 10>, gemm_tile<T, 11>,
                                     gemm_tile<T, 12>, gemm_tile<T, 13>, gemm_tile<T, 14>};
    tiles[rows](depth, a, rs, ks, b, c, ldc, start, bias);
  } else if constexpr (GemmTile<T>::kRows == 6) {
    static constexpr Tile tiles[] = {nullptr,         gemm_tile<T, 1>, gemm_tile<T, 2>, gemm_tile<T, 3>,
                                     gemm_tile<T, 4>, gemm_tile<T, 5>, gemm_tile<T, 6>};
    tiles[rows](depth, a, rs, ks, b, c, ldc, start, bias);
  } else {
    static constexpr Tile tiles[] = {nullptr, gemm_tile<T, 1>, gemm_tile<T, 2>, gemm_tile<T, 3>, gemm_tile<T, 4>};
    tiles[rows](depth, a, rs, ks, b, c, ldc, start, bias);
  }
}

// out[k * kCols + j] = B(k0 + k, n0 + j); columns past n are zero.
template <class T>
void pack_b(const Matrix& b, int64_t k0, int64_t depth, int64_t n0, int64_t n, T* out) {
  constexpr int64_t W = GemmTile<T>::kCols;
  const int64_t at = k0 * b.row_stride + n0 * b.col_stride;
  if (n == W && b.col_stride == 1) {
    for (int64_t k = 0; k < depth; ++k) load_run<T>(b.data, b.dtype, at + k * b.row_stride, 1, W, out + k * W);
    return;
  }
  int64_t j = 0;
  if constexpr (sizeof(T) == 4) {
    if (b.row_stride == 1 && b.dtype != DType::kFloat64) {  // transposed: 4x4 blocks through registers
      alignas(64) float converted[4 * GemmTile<T>::kDepth];
      for (; j + 4 <= n; j += 4) {
        const float* p0 = converted;
        int64_t ld = depth;
        if (b.dtype == DType::kFloat32) {
          ld = b.col_stride;
          p0 = static_cast<const float*>(b.data) + at + j * ld;
        } else {
          for (int64_t x = 0; x < 4; ++x)
            load_run<float>(b.data, b.dtype, at + (j + x) * b.col_stride, 1, depth, converted + x * depth);
        }
        const float *p1 = p0 + ld, *p2 = p1 + ld, *p3 = p2 + ld;
        float* o = out + j;
        int64_t k = 0;
        for (; k + 4 <= depth; k += 4) {
          __m128 r0 = _mm_loadu_ps(p0 + k), r1 = _mm_loadu_ps(p1 + k), r2 = _mm_loadu_ps(p2 + k),
                 r3 = _mm_loadu_ps(p3 + k);
          _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
          _mm_storeu_ps(o + k * W, r0);
          _mm_storeu_ps(o + (k + 1) * W, r1);
          _mm_storeu_ps(o + (k + 2) * W, r2);
          _mm_storeu_ps(o + (k + 3) * W, r3);
        }
        for (; k < depth; ++k) o[k * W] = p0[k], o[k * W + 1] = p1[k], o[k * W + 2] = p2[k], o[k * W + 3] = p3[k];
      }
    }
  }
  for (; j < n; ++j)
    for (int64_t k = 0; k < depth; ++k)
      out[k * W + j] = load_element<T>(b.data, b.dtype, at + k * b.row_stride + j * b.col_stride);
  for (; j < W; ++j)
    for (int64_t k = 0; k < depth; ++k) out[k * W + j] = T(0);
}

// out[k * kRows + i] = A(m0 + i, k0 + k)
template <class T>
void pack_a(const Matrix& a, int64_t k0, int64_t depth, int64_t m0, int64_t rows, T* out) {
  constexpr int64_t H = GemmTile<T>::kRows;
  const int64_t at = m0 * a.row_stride + k0 * a.col_stride;
  if (a.dtype == kTypeOf<T> && a.row_stride == 1) {
    const T* p = static_cast<const T*>(a.data) + at;
    if (rows == H) {
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t i = 0; i < H; ++i) out[k * H + i] = p[k * a.col_stride + i];
      return;
    }
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t i = 0; i < rows; ++i) out[k * H + i] = p[k * a.col_stride + i];
    return;
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < depth; ++k)
      out[k * H + i] = load_element<T>(a.data, a.dtype, at + i * a.row_stride + k * a.col_stride);
}

inline Matrix block_of(const Matrix& m, int64_t row, int64_t col, int64_t batch = 0) {
  Matrix out = m;
  out.data = static_cast<char*>(m.data) +
             (row * m.row_stride + col * m.col_stride + batch * m.batch_stride) * size_of(m.dtype);
  return out;
}

// One matrix of the batch, on the calling thread.
template <class T>
void gemm_serial(Parallel& parallel, const GemmArgs& g) {
  using Tile = GemmTile<T>;
  constexpr int64_t H = Tile::kRows, W = Tile::kCols;
  const bool direct_c = g.c.dtype == kTypeOf<T>;
  // Long rows are copied too where many columns read them: read in place, each would lie in another page.
  const bool pack_rows = g.a.col_stride != 1, far_rows = g.a.row_stride >= 1024 && g.n >= 256;
  const bool copy_rows = !pack_rows && (g.a.dtype != kTypeOf<T> || far_rows);
  const int64_t depth_max = g.k < Tile::kDepth ? (g.k > 0 ? g.k : 1) : Tile::kDepth;
  // Where C is stored in another type, its running sums live in scratch until the last block of k.
  const int64_t sums = direct_c ? 0 : g.m * (g.n < Tile::kWide ? (g.n + W - 1) / W * W : Tile::kWide);
  T* packed_a = static_cast<T*>(
      parallel.scratch(0, (Tile::kTall * depth_max + H * W + W + sums) * static_cast<int64_t>(sizeof(T)) + 256));
  T* edge = packed_a + Tile::kTall * depth_max;
  T* bias = edge + H * W;
  T* wide_c = bias + W;
  T* packed_b = static_cast<T*>(parallel.scratch(1, Tile::kWide * depth_max * static_cast<int64_t>(sizeof(T))));
  for (int64_t n0 = 0; n0 < g.n; n0 += Tile::kWide) {
    const int64_t nc = g.n - n0 < Tile::kWide ? g.n - n0 : Tile::kWide;
    T* c_base = direct_c ? static_cast<T*>(g.c.data) + n0 : wide_c;
    const int64_t ldc = direct_c ? g.c.row_stride : (nc + W - 1) / W * W;
    if (!direct_c && g.accumulate)
      for (int64_t i = 0; i < g.m; ++i)
        load_run<T>(g.c.data, g.c.dtype, i * g.c.row_stride + n0, 1, nc, wide_c + i * ldc);
    for (int64_t k0 = 0; k0 == 0 || k0 < g.k; k0 += Tile::kDepth) {
      const int64_t depth = g.k - k0 < Tile::kDepth ? g.k - k0 : Tile::kDepth;
      const Start start = k0 > 0 || g.accumulate ? Start::kAccumulate : g.bias ? Start::kBias : Start::kZero;
      for (int64_t j = 0; j < nc; j += W)
        pack_b<T>(g.b, k0, depth, n0 + j, nc - j < W ? nc - j : W, packed_b + j * depth);
      for (int64_t m0 = 0; m0 < g.m; m0 += Tile::kTall) {
        const int64_t mc = g.m - m0 < Tile::kTall ? g.m - m0 : Tile::kTall;
        if (pack_rows)
          for (int64_t i = 0; i < mc; i += H)
            pack_a<T>(g.a, k0, depth, m0 + i, mc - i < H ? mc - i : H, packed_a + i * depth);
        if (copy_rows)
          for (int64_t i = 0; i < mc; ++i)
            load_run<T>(g.a.data, g.a.dtype, (m0 + i) * g.a.row_stride + k0, 1, depth, packed_a + i * depth);
        for (int64_t j = 0; j < nc; j += W) {
          const int64_t cols = nc - j < W ? nc - j : W;
          if (start == Start::kBias) {
            for (int64_t x = cols; x < W; ++x) bias[x] = T(0);
            load_run<T>(g.bias, g.bias_dtype, n0 + j, 1, cols, bias);
          }
          for (int64_t i = 0; i < mc; i += H) {
            const int rows = static_cast<int>(mc - i < H ? mc - i : H);
            const T* a = pack_rows || copy_rows ? packed_a + i * depth
                                                : static_cast<const T*>(g.a.data) + (m0 + i) * g.a.row_stride + k0;
            const int64_t rs = pack_rows ? 1 : copy_rows ? depth : g.a.row_stride, ks = pack_rows ? H : 1;
            T* c = c_base + (m0 + i) * ldc + j;
            if (cols == W || !direct_c) {
              gemm_tile_of<T>(rows, depth, a, rs, ks, packed_b + j * depth, c, ldc, start, bias);
            } else {
              if (start == Start::kAccumulate)
                for (int r = 0; r < rows; ++r)
                  for (int64_t x = 0; x < W; ++x) edge[r * W + x] = x < cols ? c[r * ldc + x] : T(0);
              gemm_tile_of<T>(rows, depth, a, rs, ks, packed_b + j * depth, edge, W, start, bias);
              for (int r = 0; r < rows; ++r)
                for (int64_t x = 0; x < cols; ++x) c[r * ldc + x] = edge[r * W + x];
            }
          }
        }
      }
    }
    if (!direct_c)
      for (int64_t i = 0; i < g.m; ++i)
        store_run<T>(g.c.data, g.c.dtype, i * g.c.row_stride + n0, 1, nc, wide_c + i * ldc);
  }
}

}  // namespace lockstep::inline LOCKSTEP_ISA
