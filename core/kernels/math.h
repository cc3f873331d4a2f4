// exp, log, tanh, erf and friends as branch-free polynomials: one vectorisable definition for every instruction-set
// level and for CUDA, so that results do not depend on a library's version. fp64 (tests) uses the C library. Accuracy:
// exp and log below 1 ulp in fp32 (tests/core/kernels/math_test measures it). Always inlined: a call in a loop would
// keep it from being vectorised. Source of the method: Cody and Waite range reduction with minimax polynomials (Cephes
// expf, logf).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define HD __host__ __device__
#define LOCKSTEP_GRID  // a file is compiled for a grid of threads: by nvcc, or by tests against a stand-in for CUDA
#else
#define HD
#endif

#ifndef LOCKSTEP_ISA
#define LOCKSTEP_ISA host
#endif

namespace lockstep::inline LOCKSTEP_ISA {

[[gnu::always_inline]] HD inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__CUDA_ARCH__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;  // no instruction: its own level, its own bits
#endif
}

[[gnu::always_inline]] HD inline uint32_t bits_of(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}
[[gnu::always_inline]] HD inline float float_of(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}

// e^x; flushes to 0 below -87.3 and saturates to infinity above 88.7.
[[gnu::always_inline]] HD inline float exp_of(float x) {
  float clamped = x < -87.33654f ? -87.33654f : x;
  clamped = clamped > 88.72283f ? 88.72283f : clamped;
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  float t = fused(clamped, 1.44269504088896341f, magic);
  float n = t - magic;
  float r = fused(n, -0.693145752f, clamped);
  r = fused(n, -1.42860677e-6f, r);
  float p = 1.9875691500e-4f;
  p = fused(p, r, 1.3981999507e-3f);
  p = fused(p, r, 8.3334519073e-3f);
  p = fused(p, r, 4.1665795894e-2f);
  p = fused(p, r, 1.6666665459e-1f);
  p = fused(p, r, 5.0000001201e-1f);
  float e = fused(p, r * r, r) + 1.0f;
  // 2^n in two factors, as n = 128 has no single one.
  int32_t k = static_cast<int32_t>(bits_of(t)) - 0x4B400000;
  int32_t half = k >> 1;
  float a = float_of(static_cast<uint32_t>(half + 127) << 23);
  float b = float_of(static_cast<uint32_t>(k - half + 127) << 23);
  float y = e * a * b;
  y = x > 88.72283f ? float_of(0x7F800000u) : y;
  y = x < -87.33654f ? 0.0f : y;
  return x != x ? x : y;
}

// a * b + c: fused, or rounded twice and so the same at every instruction-set level.
template <bool kFused>
[[gnu::always_inline]] HD inline float multiply_add(float a, float b, float c) {
  if constexpr (kFused) return fused(a, b, c);
  return a * b + c;
}

// Natural logarithm; -inf at 0, NaN below.
template <bool kFused = true>
[[gnu::always_inline]] HD inline float log_of(float x) {
  uint32_t u = bits_of(x);
  int32_t e = static_cast<int32_t>(u >> 23) - 126;
  float m = float_of((u & 0x007FFFFFu) | 0x3F000000u);  // [0.5, 1)
  bool low = m < 0.707106781186547524f;
  float fe = static_cast<float>(low ? e - 1 : e);
  m = low ? m + m - 1.0f : m - 1.0f;
  float z = m * m;
  float p = 7.0376836292e-2f;
  p = multiply_add<kFused>(p, m, -1.1514610310e-1f);
  p = multiply_add<kFused>(p, m, 1.1676998740e-1f);
  p = multiply_add<kFused>(p, m, -1.2420140846e-1f);
  p = multiply_add<kFused>(p, m, 1.4249322787e-1f);
  p = multiply_add<kFused>(p, m, -1.6668057665e-1f);
  p = multiply_add<kFused>(p, m, 2.0000714765e-1f);
  p = multiply_add<kFused>(p, m, -2.4999993993e-1f);
  p = multiply_add<kFused>(p, m, 3.3333331174e-1f);
  float y = p * m * z;
  y = multiply_add<kFused>(fe, -2.12194440e-4f, y);
  y = multiply_add<kFused>(-0.5f, z, y);
  y = m + y;
  y = multiply_add<kFused>(fe, 0.693359375f, y);
  float inf = float_of(0x7F800000u);
  y = x == inf ? inf : y;
  y = x == 0.0f ? -inf : y;
  return (x < 0.0f || x != x) ? float_of(0x7FC00000u) : y;
}

[[gnu::always_inline]] HD inline float tanh_of(float x) {
  float a = x < 0 ? -x : x;
  float small = x * x;
  // near 0 the quotient below would cancel
  float p = -5.70498872745e-3f;
  p = fused(p, small, 2.06390887954e-2f);
  p = fused(p, small, -5.37397155531e-2f);
  p = fused(p, small, 1.33314422036e-1f);
  p = fused(p, small, -3.33332819422e-1f);
  float near = fused(p * small, x, x);
  float e = exp_of(-2.0f * a);
  float far = (1.0f - e) / (1.0f + e);
  far = x < 0 ? -far : far;
  return a < 0.625f ? near : far;
}

[[gnu::always_inline]] HD inline float sqrt_of(float x) { return sqrtf(x); }

[[gnu::always_inline]] HD inline double fused(double a, double b, double c) { return a * b + c; }
[[gnu::always_inline]] HD inline double exp_of(double x) { return ::exp(x); }
[[gnu::always_inline]] HD inline double log_of(double x) { return ::log(x); }  // lockstep::log writes lines
[[gnu::always_inline]] HD inline double tanh_of(double x) { return ::tanh(x); }
[[gnu::always_inline]] HD inline double sqrt_of(double x) { return ::sqrt(x); }

// GELU in its tanh form: x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
template <class T>
[[gnu::always_inline]] HD inline T gelu_of(T x) {
  T u2 = T(1.5957691216057308) * x * fused(T(0.044715) * x, x, T(1));
  return x / (T(1) + exp_of(-u2));
}

template <class T>
[[gnu::always_inline]] HD inline T gelu_gradient(T x) {
  T u2 = T(1.5957691216057308) * x * fused(T(0.044715) * x, x, T(1));
  T s = T(1) / (T(1) + exp_of(-u2));
  T du2 = T(1.5957691216057308) * fused(T(0.134145) * x, x, T(1));
  return fused(x * s * (T(1) - s), du2, s);
}

template <class T>
[[gnu::always_inline]] HD inline T silu_of(T x) {
  return x / (T(1) + exp_of(-x));
}

template <class T>
[[gnu::always_inline]] HD inline T silu_gradient(T x) {
  const T s = T(1) / (T(1) + exp_of(-x));
  return fused(x * s, T(1) - s, s);
}

template <class T>
[[gnu::always_inline]] HD inline T sigmoid_of(T x) {
  return T(1) / (T(1) + exp_of(-x));
}

// log(1 + e^x), which is max(x, 0) + log(1 + e^-|x|). What 1 + e loses to rounding is added to the logarithm again.
template <class T>
[[gnu::always_inline]] HD inline T softplus_of(T x) {
  const T e = exp_of(x < T(0) ? x : -x), u = T(1) + e;
  return (x < T(0) ? T(0) : x) + (log_of(u) + (e - (u - T(1))) / u);
}

// The normal distribution function, (1 + erf(x / sqrt(2))) / 2. Of -|x| it is e^(-x^2 / 2) times a function that is
// smooth in 1 / (1 + 0.33 |x|): its polynomial was fitted to the least relative error, 2^-26, for |x| < 13.3, beyond
// which e^(-x^2 / 2) is 0 in fp32. Nothing cancels on the left of 0.
[[gnu::always_inline]] HD inline float normal_cdf(float x) {
  const float a = x < 0 ? -x : x;
  const float k = 1.0f / fused(0.33f, a, 1.0f);
  float p = -0.0265026670f;
  p = fused(p, k, 0.151831225f);
  p = fused(p, k, -0.329551369f);
  p = fused(p, k, 0.300703228f);
  p = fused(p, k, -0.113870174f);
  p = fused(p, k, 0.149446040f);
  p = fused(p, k, 0.102578983f);
  p = fused(p, k, 0.133902982f);
  p = fused(p, k, 0.131454274f);
  p = fused(p, k, 7.46784008e-6f);
  const float tail = exp_of(-0.5f * x * x) * p;
  return x < 0 ? tail : 1.0f - tail;
}
[[gnu::always_inline]] HD inline double normal_cdf(double x) { return 0.5 * erfc(-0.70710678118654752440 * x); }

// Of x * normal_cdf(x).
template <class T>
[[gnu::always_inline]] HD inline T gelu_erf_gradient(T x) {
  return fused(x, T(0.39894228040143267794) * exp_of(T(-0.5) * x * x), normal_cdf(x));
}

// Sine and cosine of |x| < 2^28, to about 1 ulp of fp64, and the same bits everywhere: no fused multiply-add.
struct SinCos {
  double sin, cos;
};
[[gnu::always_inline]] HD inline SinCos sin_cos_of(double x) {
  const double magic = 6755399441055744.0;                        // 1.5 * 2^52: adding it rounds to an integer
  const double n = (x * 0.63661977236758134308 + magic) - magic;  // quarter turns
  double r = x - n * 1.570796251296997070312;  // pi / 2 in three parts, whose products with n are exact
  r = r - n * 7.54978941586159635336e-8;
  r = r - n * 5.39030285815811905290e-15;
  const double z = r * r;
  double s = 1.58962301576546568060e-10;
  s = s * z - 2.50507477628578072866e-8;
  s = s * z + 2.75573136213857245213e-6;
  s = s * z - 1.98412698295895385996e-4;
  s = s * z + 8.33333333332211858878e-3;
  s = s * z - 1.66666666666666307295e-1;
  s = r + r * (z * s);
  double c = -1.13585365213876817300e-11;
  c = c * z + 2.08757008419747316778e-9;
  c = c * z - 2.75573141792967388112e-7;
  c = c * z + 2.48015872888517045348e-5;
  c = c * z - 1.38888888888730564116e-3;
  c = c * z + 4.16666666666665929218e-2;
  c = 1.0 - 0.5 * z + z * z * c;
  const int32_t quarter = static_cast<int32_t>(n);
  const double sine = quarter & 1 ? c : s, cosine = quarter & 1 ? s : c;
  return {quarter & 2 ? -sine : sine, (quarter + 1) & 2 ? -cosine : cosine};
}

}  // namespace lockstep::inline LOCKSTEP_ISA
