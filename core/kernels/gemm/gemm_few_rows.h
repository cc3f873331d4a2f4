// The product of a few rows, as generating text one token at a time asks for: B is read once, in place, where packing
// it would take longer than the product. Same sums as in gemm_serial.cpp, which alone includes this.
#pragma once

#include "core/kernels/gemm/gemm_serial.h"
#include "core/kernels/simd.h"

namespace lockstep::inline LOCKSTEP_ISA {

constexpr int64_t kMostFewRows = 8;

// B of elements From, by squares of L x L in registers. Either its rows or its columns are contiguous.
template <class T, class From>
struct Squares {
  using S = Simd<T>;
  static constexpr int64_t L = S::kLanes;

  // B(k0 + i, j0 ..) in v[i] for i below `depth`, zero past either end. At most L of `depth` and `cols`.
  void load(int64_t k0, int64_t depth, int64_t j0, int64_t cols, typename S::V* v) const {
    const auto* p = static_cast<const From*>(b.data) + k0 * b.row_stride + j0 * b.col_stride;
    const bool across = b.row_stride == 1;
    const int64_t rows = across ? cols : depth, run = across ? depth : cols,
                  stride = across ? b.col_stride : b.row_stride;
    if (rows == L && run == L) {
#pragma GCC unroll 16
      for (int64_t i = 0; i < L; ++i) v[i] = S::load(p + i * stride);
    } else {
      alignas(64) T part[L * L] = {};
      for (int64_t i = 0; i < rows; ++i) load_run<T>(p, b.dtype, i * stride, 1, run, part + i * L);
#pragma GCC unroll 16
      for (int64_t i = 0; i < L; ++i) v[i] = S::load(part + i * L);
    }
    if (across) transpose_vectors<T>(v);
  }

  const Matrix& b;
};

// M rows of C, L columns from j0: one chain over k.
template <class T, int M>
void multiply_rows(const Squares<T, T>& b, int64_t depth, const T* a, int64_t lda, int64_t j0, int64_t cols, T* c) {
  using S = Simd<T>;
  constexpr int64_t L = S::kLanes;
  typename S::V acc[M], v[L];
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i) acc[i] = S::load(c + i * L);
  const auto step = [&](int64_t k, typename S::V row) {
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) acc[i] = S::mul_add(S::all(a[i * lda + k]), row, acc[i]);
  };
  int64_t k = 0;
  for (; k + L <= depth; k += L) {
    b.load(k, L, j0, cols, v);
#pragma GCC unroll 16
    for (int64_t x = 0; x < L; ++x) step(k + x, v[x]);
  }
  if (k < depth) {
    b.load(k, depth - k, j0, cols, v);
    alignas(64) T rest[L * L];
#pragma GCC unroll 16
    for (int64_t x = 0; x < L; ++x) S::store(rest + x * L, v[x]);
    for (int64_t x = 0; k + x < depth; ++x) step(k + x, S::load(rest + x * L));
  }
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i) S::store(c + i * L, acc[i]);
}

// The same by pairs, of elements in bf16; rows of A are followed by zeros up to a whole block of 32.
template <int M>
void multiply_rows_by_pairs(const Squares<float, uint16_t>& b, int64_t depth, const float* a, int64_t lda, int64_t j0,
                            int64_t cols, float* c) {
  using S = Simd<float>;
  constexpr int64_t L = S::kLanes;
  typename S::V v[L];
  for (int64_t k0 = 0; k0 == 0 || k0 < depth; k0 += 32) {
    typename S::V even[M], odd[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) even[i] = odd[i] = S::all(0);
    for (int64_t k = k0; k < k0 + 32 && k < depth; k += L) {
      b.load(k, depth - k < L ? depth - k : L, j0, cols, v);
#pragma GCC unroll 16
      for (int64_t x = 0; x < L; ++x)
#pragma GCC unroll 8
        for (int i = 0; i < M; ++i) {
          auto& sum = x % 2 ? odd[i] : even[i];
          sum = S::mul_add_exact(S::all(a[i * lda + k + x]), v[x], sum);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) S::store(c + i * L, S::add(S::load(c + i * L), S::add(even[i], odd[i])));
  }
}

// Whether multiply_few_rows() takes the product.
template <class T, bool kPairs>
bool has_few_rows(const GemmArgs& g) {
  return g.m <= kMostFewRows &&
         g.b.dtype == (kPairs ? DType::kBFloat16 : kTypeOf<T>)&&(g.b.row_stride == 1 || g.b.col_stride == 1);
}

template <class T, bool kPairs>
void multiply_few_rows(Parallel& parallel, const GemmArgs& g) {
  constexpr int64_t L = Simd<T>::kLanes;
  const int64_t lda = (g.k + 31) / 32 * 32;
  T* const a = static_cast<T*>(parallel.scratch(0, (g.m * lda + 1) * static_cast<int64_t>(sizeof(T))));
  for (int64_t i = 0; i < g.m; ++i) {
    if (g.k > 0) load_run<T>(g.a.data, g.a.dtype, i * g.a.row_stride, g.a.col_stride, g.k, a + i * lda);
    for (int64_t k = g.k; k < lda; ++k) a[i * lda + k] = T(0);
  }
  for (int64_t j0 = 0; j0 < g.n; j0 += L) {
    const int64_t cols = g.n - j0 < L ? g.n - j0 : L;
    alignas(64) T c[kMostFewRows * L] = {};
    for (int64_t i = 0; i < g.m; ++i) {
      if (g.accumulate) load_run<T>(g.c.data, g.c.dtype, i * g.c.row_stride + j0, 1, cols, c + i * L);
      else if (g.bias) load_run<T>(g.bias, g.bias_dtype, j0, 1, cols, c + i * L);
    }
    for (int64_t i = 0; i < g.m;) {
      const int64_t left = g.m - i;
      const auto rows = [&](auto count) {
        if constexpr (kPairs) multiply_rows_by_pairs<count>({g.b}, g.k, a + i * lda, lda, j0, cols, c + i * L);
        else multiply_rows<T, count>({g.b}, g.k, a + i * lda, lda, j0, cols, c + i * L);
        i += count;
      };
      if (left >= 8 && Simd<T>::kManyRegisters && !kPairs) rows(std::integral_constant<int, 8>());
      else if (left >= 4) rows(std::integral_constant<int, 4>());
      else if (left >= 2) rows(std::integral_constant<int, 2>());
      else rows(std::integral_constant<int, 1>());
    }
    for (int64_t i = 0; i < g.m; ++i) store_run<T>(g.c.data, g.c.dtype, i * g.c.row_stride + j0, 1, cols, c + i * L);
  }
}

}  // namespace lockstep::inline LOCKSTEP_ISA
