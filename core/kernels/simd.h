// Vectors of one instruction-set level for the matrix product: load, store, broadcast, multiply-add, and the register
// tile that fits. Plain values; compiled once per level.
#pragma once

#include <immintrin.h>

#include "core/kernels/math.h"

namespace lockstep::inline LOCKSTEP_ISA {

template <class T>
struct Simd;

#if defined(__AVX512F__)

template <>
struct Simd<float> {
  using V = __m512;
  static constexpr int kLanes = 16, kRows = 8, kVectors = 3;  // 24 accumulators of 32 registers
  static constexpr bool kManyRegisters = true;
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static V all(float x) { return _mm512_set1_ps(x); }
  static V mul_add(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
};
template <>
struct Simd<double> {
  using V = __m512d;
  static constexpr int kLanes = 8, kRows = 4, kVectors = 2;
  static constexpr bool kManyRegisters = false;
  static V load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(double* p, V v) { _mm512_storeu_pd(p, v); }
  static V all(double x) { return _mm512_set1_pd(x); }
  static V mul_add(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
};

#elif defined(__AVX2__)

template <>
struct Simd<float> {
  using V = __m256;
  static constexpr int kLanes = 8, kRows = 6, kVectors = 2;  // 12 accumulators of 16 registers
  static constexpr bool kManyRegisters = false;
  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  static V all(float x) { return _mm256_set1_ps(x); }
  static V mul_add(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
};
template <>
struct Simd<double> {
  using V = __m256d;
  static constexpr int kLanes = 4, kRows = 4, kVectors = 2;
  static constexpr bool kManyRegisters = false;
  static V load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, V v) { _mm256_storeu_pd(p, v); }
  static V all(double x) { return _mm256_set1_pd(x); }
  static V mul_add(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
};

#else

template <>
struct Simd<float> {
  using V = __m128;
  static constexpr int kLanes = 4, kRows = 4, kVectors = 2;
  static constexpr bool kManyRegisters = false;
  static V load(const float* p) { return _mm_loadu_ps(p); }
  static void store(float* p, V v) { _mm_storeu_ps(p, v); }
  static V all(float x) { return _mm_set1_ps(x); }
  static V mul_add(V a, V b, V c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
};
template <>
struct Simd<double> {
  using V = __m128d;
  static constexpr int kLanes = 2, kRows = 4, kVectors = 2;
  static constexpr bool kManyRegisters = false;
  static V load(const double* p) { return _mm_loadu_pd(p); }
  static void store(double* p, V v) { _mm_storeu_pd(p, v); }
  static V all(double x) { return _mm_set1_pd(x); }
  static V mul_add(V a, V b, V c) { return _mm_add_pd(_mm_mul_pd(a, b), c); }
};

#endif

}  // namespace lockstep::inline LOCKSTEP_ISA
