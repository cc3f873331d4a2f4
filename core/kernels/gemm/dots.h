// Blocks of gemm_tiles.cpp by the dot products of AVX-512 (VDPBF16PS) instead of AMX's tiles. The instruction adds two
// products to each sum, first that of the high halves of its operands, then that of the low ones, each with one
// rounding and denormals flushed: two multiply-adds of one chain, where a half holds what follows the other in the
// chain. Of each four k a packed operand therefore holds k + 2 and k in one word and k + 3 and k + 1 in the next, low
// half first. (Intel SDM, volume 2, VDPBF16PS; that a processor rounds so is checked when the program starts,
// select.cpp.)
#pragma once

#include <immintrin.h>

#include <cstring>

#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {

// `rows` rows of C, 32 columns, = before + A B over `depth` of k, a multiple of 32. A: rows at `stride` elements; B: a
// panel [depth / 4, even and odd k, 32 columns, 2]; `before`: rows at `ldb` elements, or null.
template <int M>
void multiply_rows_by_dots(int64_t depth, const uint16_t* a, int64_t stride, const uint16_t* b, const float* before,
                           int64_t ldb, float* c, int64_t ldc) {
  constexpr int N = 2;
  const uint16_t *p0 = a, *p1 = a + 3 * stride;  // three rows are reached from one pointer
  const auto word = [](const uint16_t* p) {
    int32_t two;
    std::memcpy(&two, p, sizeof two);
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(two));
  };
  const auto line = [](const uint16_t* p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); };
  for (int64_t k0 = 0; k0 == 0 || k0 < depth; k0 += 32) {
    __m512 even[M][N], odd[M][N];
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < N; ++j) even[i][j] = odd[i][j] = _mm512_setzero_ps();
    if (depth > 0)
#pragma GCC unroll 8
      for (int64_t k = k0; k < k0 + 32; k += 4) {
        const uint16_t* from = b + k * 32;
        const __m512bh e0 = line(from), e1 = line(from + 32), o0 = line(from + 64), o1 = line(from + 96);
#pragma GCC unroll 6
        for (int i = 0; i < M; ++i) {
          const uint16_t* p = (i < 3 ? p0 : p1) + i % 3 * stride + k;
          const __m512bh first = word(p), second = word(p + 2);
          even[i][0] = _mm512_dpbf16_ps(even[i][0], first, e0);
          even[i][1] = _mm512_dpbf16_ps(even[i][1], first, e1);
          odd[i][0] = _mm512_dpbf16_ps(odd[i][0], second, o0);
          odd[i][1] = _mm512_dpbf16_ps(odd[i][1], second, o1);
        }
      }
    const float* from = k0 > 0 ? c : before;
    const int64_t ld = k0 > 0 ? ldc : ldb;
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < N; ++j)
        _mm512_storeu_ps(c + i * ldc + 16 * j,
                         _mm512_add_ps(from ? _mm512_loadu_ps(from + i * ld + 16 * j) : _mm512_setzero_ps(),
                                       _mm512_add_ps(even[i][j], odd[i][j])));
  }
}

inline void multiply_by_dots(int64_t depth, int64_t rows, const uint16_t* a, int64_t stride, const uint16_t* b,
                             const float* before, int64_t ldb, float* c, int64_t ldc) {
  while (rows > 0) {
    const int64_t now = rows >= 12 || rows == 6 ? 6 : rows > 6 ? (rows + 1) / 2 : rows;
    const auto call = [&](auto function) { function(depth, a, stride, b, before, ldb, c, ldc); };
    switch (now) {
      case 6: call(multiply_rows_by_dots<6>); break;
      case 5: call(multiply_rows_by_dots<5>); break;
      case 4: call(multiply_rows_by_dots<4>); break;
      case 3: call(multiply_rows_by_dots<3>); break;
      case 2: call(multiply_rows_by_dots<2>); break;
      default: call(multiply_rows_by_dots<1>); break;
    }
    rows -= now, a += now * stride, c += now * ldc;
    if (before) before += now * ldb;
  }
}

}  // namespace lockstep::inline LOCKSTEP_ISA
