// Codes of frozen weights, for CPU levels, CUDA and the host. A block of 64 elements of the flattened tensor is its
// codes and, behind them, its scale in fp32; a value is one product in fp32. Plain functions.
//
// nf4: 4 bits an element, the first of two in the upper half of a byte: quantiles of a normal distribution by the
// block's largest magnitude (Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", 2023), as in
// bitsandbytes. int8: a signed byte an element; the scale is that of the element's row, its largest magnitude / 127
// (Dettmers et al., "LLM.int8()", 2022).
#pragma once

#include "core/base/dtype.h"
#include "core/base/nf4_levels.h"
#include "core/kernels/math.h"

namespace lockstep::inline LOCKSTEP_ISA {

HD inline float nf4_level(uint32_t code) {
  constexpr float kLevels[16] = LOCKSTEP_NF4_LEVELS;
  return kLevels[code & 15u];
}

// Element i of a block.
HD inline float decode_weight(DType coding, const uint8_t* codes, float scale, int64_t i) {
  if (coding == DType::kInt8) return static_cast<float>(static_cast<int8_t>(codes[i])) * scale;
  const uint32_t both = codes[i / 2];
  return nf4_level(i % 2 == 0 ? both >> 4 : both) * scale;
}

}  // namespace lockstep::inline LOCKSTEP_ISA
