// Codes of frozen weights to values, on a CPU.
#include "core/kernels/codes/weight_codes.h"

#include <cstring>

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"
#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int64_t kCodedGrain = 64;  // blocks

// Both elements of each byte.
struct Nf4Pairs {
  float of[256][2];
  constexpr Nf4Pairs() : of{} {
    constexpr float kLevels[16] = LOCKSTEP_NF4_LEVELS;
    for (int b = 0; b < 256; ++b) of[b][0] = kLevels[b >> 4], of[b][1] = kLevels[b & 15];
  }
};
constexpr Nf4Pairs kPairs;

void decode_block(DType coding, const uint8_t* codes, float* out) {
  float scale;
  if (coding == DType::kNf4) {
    std::memcpy(&scale, codes + kCodedBlock / 2, sizeof scale);
    for (int64_t i = 0; i < kCodedBlock / 2; ++i) std::memcpy(out + 2 * i, kPairs.of[codes[i]], 2 * sizeof(float));
    for (int64_t i = 0; i < kCodedBlock; ++i) out[i] *= scale;
  } else {
    std::memcpy(&scale, codes + kCodedBlock, sizeof scale);
    for (int64_t i = 0; i < kCodedBlock; ++i) out[i] = static_cast<float>(static_cast<int8_t>(codes[i])) * scale;
  }
}

}  // namespace

void decode_weight(Parallel& parallel, const WeightCodesArgs& a) {
  const int64_t width = bytes_of_block(a.coding);
  auto blocks = [&a, width](int64_t begin, int64_t end) {
    float values[kCodedBlock];
    for (int64_t b = begin; b < end; ++b) {
      const int64_t at = b * kCodedBlock, left = a.count - at, n = left < kCodedBlock ? left : kCodedBlock;
      const auto* codes = static_cast<const uint8_t*>(a.codes) + b * width;
      decode_block(a.coding, codes, values);
      if (a.values_dtype == DType::kFloat32) {
        std::memcpy(static_cast<float*>(a.values) + at, values, static_cast<size_t>(n) * sizeof(float));
      } else if (a.values_dtype == DType::kBFloat16) {
        auto* out = static_cast<uint16_t*>(a.values) + at;
        for (int64_t i = 0; i < n; ++i) out[i] = to_bf16(values[i]);
      } else {
        auto* out = static_cast<uint16_t*>(a.values) + at;
        for (int64_t i = 0; i < n; ++i) out[i] = to_fp16(values[i]);
      }
    }
  };
  parallel.run((a.count + kCodedBlock - 1) / kCodedBlock, kCodedGrain, blocks);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
