// Converts runs of elements between their storage type and the type T in which a kernel computes.
// Stateless; compiled once per instruction-set level.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/kernels/args.h"
#include "core/kernels/math.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace lockstep::inline LOCKSTEP_ISA {

HD inline float from_bf16(uint16_t h) { return float_of(static_cast<uint32_t>(h) << 16); }
HD inline uint16_t to_bf16(float x) {  // to nearest, ties to even; NaN stays NaN
#if defined(__CUDA_ARCH__)
  uint16_t h;  // the same rounding as one instruction
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
#else
  uint32_t u = bits_of(x);
  uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1)) >> 16;
  return static_cast<uint16_t>(x != x ? (u >> 16) | 0x40 : rounded);
#endif
}

HD inline float from_fp16(uint16_t h) {
#if defined(__CUDA_ARCH__)
  float exact;
  asm("cvt.f32.f16 %0, %1;" : "=f"(exact) : "h"(h));
  return exact;
#else
  uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  uint32_t rest = static_cast<uint32_t>(h & 0x7FFFu) << 13;
  uint32_t exponent = h & 0x7C00u;
  // 2^112 shifts the exponent's bias and normalises denormals at once
  float value = float_of(rest) * 0x1p112f;
  if (exponent == 0) value = static_cast<float>(h & 0x3FFu) * 0x1p-24f;  // exact, also where denormals are flushed
  uint32_t u = exponent == 0x7C00u ? (rest | 0x7F800000u) : bits_of(value);
  return float_of(u | sign);
#endif
}
HD inline uint16_t to_fp16(float x) {
#if defined(__CUDA_ARCH__)
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
#else
  uint32_t u = bits_of(x), sign = (u >> 16) & 0x8000u;
  u &= 0x7FFFFFFFu;
  if (u > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (u >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // rounds to infinity
  if (u < 0x38800000u) {                                               // denormal result: steps of 2^-24
    float scaled = float_of(u) * 0x1p24f + 12582912.0f;
    return static_cast<uint16_t>(sign | (bits_of(scaled) - 0x4B400000u));
  }
  return static_cast<uint16_t>(sign | ((u - 0x38000000u + 0xFFFu + ((u >> 13) & 1)) >> 13));
#endif
}

template <class T>
HD inline T load_element(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kFloat32: return static_cast<T>(static_cast<const float*>(data)[i]);
    case DType::kBFloat16: return static_cast<T>(from_bf16(static_cast<const uint16_t*>(data)[i]));
    case DType::kFloat16: return static_cast<T>(from_fp16(static_cast<const uint16_t*>(data)[i]));
    case DType::kFloat64: return static_cast<T>(static_cast<const double*>(data)[i]);
    case DType::kInt64: return static_cast<T>(static_cast<const int64_t*>(data)[i]);
    case DType::kInt32: return static_cast<T>(static_cast<const int32_t*>(data)[i]);
    case DType::kUInt8: return static_cast<T>(static_cast<const uint8_t*>(data)[i]);
    case DType::kNf4:
    case DType::kInt8: break;  // they are decoded first
  }
  return T(0);
}

template <class T>
HD inline void store_element(void* data, DType dtype, int64_t i, T v) {
  switch (dtype) {
    case DType::kFloat32: static_cast<float*>(data)[i] = static_cast<float>(v); break;
    case DType::kBFloat16: static_cast<uint16_t*>(data)[i] = to_bf16(static_cast<float>(v)); break;
    case DType::kFloat16: static_cast<uint16_t*>(data)[i] = to_fp16(static_cast<float>(v)); break;
    case DType::kFloat64: static_cast<double*>(data)[i] = static_cast<double>(v); break;
    case DType::kInt64: static_cast<int64_t*>(data)[i] = static_cast<int64_t>(v); break;
    case DType::kInt32: static_cast<int32_t*>(data)[i] = static_cast<int32_t>(v); break;
    case DType::kUInt8: static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(v); break;
    case DType::kNf4:
    case DType::kInt8: break;
  }
}

template <class T>
inline constexpr DType kTypeOf = DType::kFloat32;
template <>
inline constexpr DType kTypeOf<double> = DType::kFloat64;

#if !defined(LOCKSTEP_GRID)

// out[i] = source[offset + i * stride] for i in [0, n)
template <class T>
inline void load_run(const void* source, DType dtype, int64_t offset, int64_t stride, int64_t n, T* out) {
  if (stride == 0) {
    T v = load_element<T>(source, dtype, offset);
    for (int64_t i = 0; i < n; ++i) out[i] = v;
    return;
  }
  if (dtype == kTypeOf<T>) {
    const T* p = static_cast<const T*>(source) + offset;
    if (stride == 1) memcpy(out, p, static_cast<size_t>(n) * sizeof(T));
    else
      for (int64_t i = 0; i < n; ++i) out[i] = p[i * stride];
    return;
  }
  if (stride == 1 && dtype == DType::kBFloat16) {
    const uint16_t* p = static_cast<const uint16_t*>(source) + offset;
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(from_bf16(p[i]));
    return;
  }
#if defined(__F16C__)
  if (stride == 1 && dtype == DType::kFloat16 && sizeof(T) == 4) {
    const uint16_t* p = static_cast<const uint16_t*>(source) + offset;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
      _mm256_storeu_ps(reinterpret_cast<float*>(out + i),
                       _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i))));
    for (; i < n; ++i) out[i] = static_cast<T>(from_fp16(p[i]));
    return;
  }
#endif
  for (int64_t i = 0; i < n; ++i) out[i] = load_element<T>(source, dtype, offset + i * stride);
}

// destination[offset + i * stride] = in[i] for i in [0, n)
template <class T>
inline void store_run(void* destination, DType dtype, int64_t offset, int64_t stride, int64_t n, const T* in) {
  if (dtype == kTypeOf<T> && stride == 1) {
    memcpy(static_cast<T*>(destination) + offset, in, static_cast<size_t>(n) * sizeof(T));
    return;
  }
  if (stride == 1 && dtype == DType::kBFloat16) {
    uint16_t* p = static_cast<uint16_t*>(destination) + offset;
    for (int64_t i = 0; i < n; ++i) p[i] = to_bf16(static_cast<float>(in[i]));
    return;
  }
#if defined(__F16C__)
  if (stride == 1 && dtype == DType::kFloat16 && sizeof(T) == 4) {
    uint16_t* p = static_cast<uint16_t*>(destination) + offset;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(reinterpret_cast<const float*>(in + i)), 0));
    for (; i < n; ++i) p[i] = to_fp16(static_cast<float>(in[i]));
    return;
  }
#endif
  for (int64_t i = 0; i < n; ++i) store_element<T>(destination, dtype, offset + i * stride, in[i]);
}

#endif

}  // namespace lockstep::inline LOCKSTEP_ISA
