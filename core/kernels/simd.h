// Vectors of one instruction-set level for the matrix product: load, store, broadcast, multiply-add, and the register
// tiles that fit: kRows x kVectors, and where A is read in place, by rows, kInPlaceRows x kInPlaceVectors. From
// uint16_t it loads bf16; mul_add_exact rounds once, of products of two bf16. add_product is mul_add for the sums of a
// register tile: of fp32 it names the instruction, as g++ 12 otherwise writes some of the sums to other registers or to
// memory. With kReadsFactor there is add_product_of, whose factor for all lanes the same instruction reads from memory.
// Plain values; compiled once per level.
#pragma once

#include <immintrin.h>

#include <type_traits>

#include "core/kernels/math.h"

namespace lockstep::inline LOCKSTEP_ISA {

template <class T>
struct Simd;

#if defined(__AVX512F__)

template <>
struct Simd<float> {
  using V = __m512;
  static constexpr int kLanes = 16, kRows = 14, kVectors = 2;  // 28 accumulators of 32 registers
  static constexpr int kInPlaceRows = 8, kInPlaceVectors = 3;  // 24
  static constexpr int kPairRows = 7, kPairVectors = 2;        // of either chain
  static constexpr bool kReadsFactor = true;
  static constexpr bool kManyRegisters = true;
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static V load(const uint16_t* p) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    // Masked by all ones: g++ 12 takes the plain forms for uses of an uninitialised value.
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, _mm512_maskz_cvtepu16_epi32(0xFFFF, low), 16));
  }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static V all(float x) { return _mm512_set1_ps(x); }
  static V mul_add(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V add_product(V a, V b, V c) {
    asm("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
  }
  // The same of all(a), which the instruction reads from memory.
  static V add_product_of(const float& a, V b, V c) {
    asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(b), "m"(a));
    return c;
  }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V mul_add_exact(V a, V b, V c) { return add_product(a, b, c); }
};
template <>
struct Simd<double> {
  using V = __m512d;
  static constexpr int kLanes = 8, kRows = 4, kVectors = 2;
  static constexpr int kInPlaceRows = kRows, kInPlaceVectors = kVectors;
  static constexpr bool kReadsFactor = false;
  static constexpr bool kManyRegisters = false;
  static V load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(double* p, V v) { _mm512_storeu_pd(p, v); }
  static V all(double x) { return _mm512_set1_pd(x); }
  static V mul_add(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
  static V add_product(V a, V b, V c) { return mul_add(a, b, c); }
};

#elif defined(__AVX2__)

template <>
struct Simd<float> {
  using V = __m256;
  static constexpr int kLanes = 8, kRows = 6, kVectors = 2;  // 12 accumulators of 16 registers
  static constexpr int kInPlaceRows = kRows, kInPlaceVectors = kVectors;
  static constexpr int kPairRows = 6, kPairVectors = 2;
  static constexpr bool kReadsFactor = false;
  static constexpr bool kManyRegisters = false;
  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static V load(const uint16_t* p) {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(low), 16));
  }
  static void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  static V all(float x) { return _mm256_set1_ps(x); }
  static V mul_add(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V add_product(V a, V b, V c) {
    asm("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
  }
  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V mul_add_exact(V a, V b, V c) { return add_product(a, b, c); }
};
template <>
struct Simd<double> {
  using V = __m256d;
  static constexpr int kLanes = 4, kRows = 4, kVectors = 2;
  static constexpr int kInPlaceRows = kRows, kInPlaceVectors = kVectors;
  static constexpr bool kReadsFactor = false;
  static constexpr bool kManyRegisters = false;
  static V load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, V v) { _mm256_storeu_pd(p, v); }
  static V all(double x) { return _mm256_set1_pd(x); }
  static V mul_add(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
  static V add_product(V a, V b, V c) { return mul_add(a, b, c); }
};

#else

template <>
struct Simd<float> {
  using V = __m128;
  static constexpr int kLanes = 4, kRows = 4, kVectors = 2;
  static constexpr int kInPlaceRows = kRows, kInPlaceVectors = kVectors;
  static constexpr int kPairRows = 4, kPairVectors = 2;
  static constexpr bool kReadsFactor = false;
  static constexpr bool kManyRegisters = false;
  static V load(const float* p) { return _mm_loadu_ps(p); }
  static V load(const uint16_t* p) {
    const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), low));
  }
  static void store(float* p, V v) { _mm_storeu_ps(p, v); }
  static V all(float x) { return _mm_set1_ps(x); }
  static V mul_add(V a, V b, V c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
  static V add_product(V a, V b, V c) { return mul_add(a, b, c); }
  static V add(V a, V b) { return _mm_add_ps(a, b); }
  // In fp64 the product of two bf16 is exact, and rounding its sum with an fp32 twice is as rounding it once.
  static V mul_add_exact(V a, V b, V c) {
    const auto half = [](V x, V y, V z) {
      return _mm_cvtpd_ps(_mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(x), _mm_cvtps_pd(y)), _mm_cvtps_pd(z)));
    };
    return _mm_movelh_ps(half(a, b, c), half(_mm_movehl_ps(a, a), _mm_movehl_ps(b, b), _mm_movehl_ps(c, c)));
  }
};
template <>
struct Simd<double> {
  using V = __m128d;
  static constexpr int kLanes = 2, kRows = 4, kVectors = 2;
  static constexpr int kInPlaceRows = kRows, kInPlaceVectors = kVectors;
  static constexpr bool kReadsFactor = false;
  static constexpr bool kManyRegisters = false;
  static V load(const double* p) { return _mm_loadu_pd(p); }
  static void store(double* p, V v) { _mm_storeu_pd(p, v); }
  static V all(double x) { return _mm_set1_pd(x); }
  static V mul_add(V a, V b, V c) { return _mm_add_pd(_mm_mul_pd(a, b), c); }
  static V add_product(V a, V b, V c) { return mul_add(a, b, c); }
};

#endif

// The L x L matrix with row i in v[i], transposed: log2(L) rounds of exchanges.
template <class T>
inline void transpose_vectors(typename Simd<T>::V* v) {
  constexpr int L = Simd<T>::kLanes;
  using V = typename Simd<T>::V;
  using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  typedef Index Indices __attribute__((vector_size(sizeof(V))));
#pragma GCC unroll 4
  for (int d = 1; d < L; d *= 2) {
    Indices low{}, high{};
#pragma GCC unroll 16
    for (int j = 0; j < L; ++j) {
      low[j] = j & d ? L + j - d : j;
      high[j] = j & d ? L + j : j + d;
    }
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) {
      if (i & d) continue;
      const V a = v[i], b = v[i + d];
      v[i] = __builtin_shuffle(a, b, low);
      v[i + d] = __builtin_shuffle(a, b, high);
    }
  }
}

}  // namespace lockstep::inline LOCKSTEP_ISA
