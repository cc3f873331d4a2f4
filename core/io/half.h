// Elements of 16 bits as files store them. Kernels have their own (core/kernels/stage.h), compiled for each level.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

inline float from_bf16_bits(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

// Rounds to nearest, ties to even; NaN stays NaN.
inline uint16_t to_bf16_bits(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  if (v != v) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float from_fp16_bits(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float small = static_cast<float>(mantissa) * 0x1p-24f;  // exact
  return sign ? -small : small;
}

}  // namespace lockstep
