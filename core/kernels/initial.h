// One initial value from random bits: uniform, or normal. Plain functions, written once for CPU and CUDA, whose bits
// agree.
#pragma once

#include "core/base/philox.h"
#include "core/kernels/args.h"
#include "core/kernels/math.h"

namespace lockstep::inline LOCKSTEP_ISA {

// The parameter's element at `at` of a.begin's order.
[[gnu::always_inline]] HD inline int64_t element_of(const InitialArgs& a, int64_t at) {
  if (a.dims == 0) return at;
  int64_t element = a.first;
  for (int i = a.dims - 1; i >= 0; --i) {
    element += at % a.extent[i] * a.stride[i];
    at /= a.extent[i];
  }
  return element;
}

// Uniform in (-1, 1), symmetric about 0, never +-1.
[[gnu::always_inline]] HD inline float symmetric_of(uint32_t bits) { return 2.0f * uniform_of(bits) - 1.0f + 0x1p-24f; }

// Standard normal from a uniform in (-1, 1), by the inverse of the error function (Giles, "Approximating the erfinv
// function", GPU Computing Gems 2011). Without fused arithmetic, so that every level gives the same bits.
[[gnu::always_inline]] HD inline float normal_of(float u) {
  const float w = -log_of<false>((1.0f - u) * (1.0f + u));
  const float near = w - 2.5f, far = sqrt_of(w) - 3.0f;
  float p = 2.81022636e-08f;
  p = 3.43273939e-07f + p * near;
  p = -3.5233877e-06f + p * near;
  p = -4.39150654e-06f + p * near;
  p = 0.00021858087f + p * near;
  p = -0.00125372503f + p * near;
  p = -0.00417768164f + p * near;
  p = 0.246640727f + p * near;
  p = 1.50140941f + p * near;
  float q = -0.000200214257f;
  q = 0.000100950558f + q * far;
  q = 0.00134934322f + q * far;
  q = -0.00367342844f + q * far;
  q = 0.00573950773f + q * far;
  q = -0.0076224613f + q * far;
  q = 0.00943887047f + q * far;
  q = 1.00167406f + q * far;
  q = 2.83297682f + q * far;
  return 1.41421356f * (w < 5.0f ? p : q) * u;
}

}  // namespace lockstep::inline LOCKSTEP_ISA
