// Codes of 8 bits for blocks of kStateChunk values that share a scale, the largest magnitude of the block (Dettmers et
// al., "8-bit optimizers via block-wise quantization", 2022). A code is a small floating-point number with 3 bits of
// mantissa, of a value's part of the scale (as the formats of Micikevicius et al., "FP8 formats for deep learning",
// 2022): in a block without a negative value 5 bits of exponent, down to 2^-33, so that a second moment keeps its
// range; else a sign and 4 bits of exponent, down to 2^-17. The sign of the scale says which. Arithmetic shared by CPU
// levels and CUDA. Plain functions.
//
// Encoding what was decoded gives the same values again: the largest is exactly the scale, and no value is so small
// that it would underflow.
#pragma once

#include "core/kernels/math.h"

namespace lockstep::inline LOCKSTEP_ISA {

// Blocks without a larger value are zero.
constexpr float kLeastScale = 0x1p-90f;

// The code of a part in [0, 1], to nearest, ties to even; 1 is `(127 - base) * 8`. Parts below 2^(base - 126) are
// multiples of 1 / `steps`.
[[gnu::always_inline]] HD inline uint32_t code_of(float part, uint32_t base, float steps) {
  const uint32_t u = bits_of(part);
  const uint32_t normal = ((u + 0x7FFFFu + ((u >> 20) & 1u)) >> 20) - (base << 3);
  const uint32_t tiny = bits_of(part * steps + 8388608.0f) - 0x4B000000u;  // 2^23: the sum is an integer
  return u < ((base + 1) << 23) ? tiny : normal;
}
[[gnu::always_inline]] HD inline float part_of(uint32_t code, uint32_t base, float unit) {
  const float tiny = static_cast<float>(static_cast<int32_t>(code)) * unit;
  return code < 8 ? tiny : float_of((code + (base << 3)) << 20);
}

// Of a block without a negative value. What is not zero does not become zero: a second moment is divided by.
[[gnu::always_inline]] HD inline uint8_t encode_positive(float x, float scale) {
  const uint32_t code = code_of(x / scale, 96, 0x1p33f);
  return static_cast<uint8_t>(x > 0 && code == 0 ? 1 : code);
}
[[gnu::always_inline]] HD inline float decode_positive(uint8_t code, float scale) {
  return part_of(code, 96, 0x1p-33f) * scale;
}
[[gnu::always_inline]] HD inline uint8_t encode_signed(float x, float scale) {
  const uint32_t code = code_of((x < 0 ? -x : x) / scale, 112, 0x1p17f);
  return static_cast<uint8_t>(x < 0 && code != 0 ? code | 0x80u : code);
}
[[gnu::always_inline]] HD inline float decode_signed(uint8_t code, float scale) {
  const float part = part_of(code & 0x7Fu, 112, 0x1p-17f) * scale;
  return (code & 0x80u) != 0 ? -part : part;
}

// What a block's values come to, for its scale.
struct BlockExtent {
  float largest = 0;
  bool negative = false, invalid = false;  // invalid: NaN, which makes the whole block NaN

  HD void add(float x) {
    const float magnitude = x < 0 ? -x : x;
    largest = magnitude > largest ? magnitude : largest;
    negative |= x < 0;
    invalid |= x != x;
  }
  // Below zero where the codes have signs.
  HD float scale() const {
    if (invalid) return NAN;
    if (largest < kLeastScale) return 0;
    return negative ? -largest : largest;
  }
};

[[gnu::always_inline]] HD inline uint8_t encode(float x, float scale) {
  if (scale == 0) return 0;
  return scale < 0 ? encode_signed(x, -scale) : encode_positive(x, scale);
}
[[gnu::always_inline]] HD inline float decode(uint8_t code, float scale) {
  return scale < 0 ? decode_signed(code, -scale) : decode_positive(code, scale);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
