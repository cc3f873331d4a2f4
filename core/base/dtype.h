// Element types. bf16 and fp16 are storage formats: arithmetic on them is done in fp32.
// Plain values.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16, kFloat64, kInt64, kInt32, kUInt8 };

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::kFloat32: return 4;
    case DType::kBFloat16: return 2;
    case DType::kFloat16: return 2;
    case DType::kFloat64: return 8;
    case DType::kInt64: return 8;
    case DType::kInt32: return 4;
    case DType::kUInt8: return 1;
  }
  return 0;
}

constexpr std::string_view to_text(DType t) {
  switch (t) {
    case DType::kFloat32: return "fp32";
    case DType::kBFloat16: return "bf16";
    case DType::kFloat16: return "fp16";
    case DType::kFloat64: return "fp64";
    case DType::kInt64: return "int64";
    case DType::kInt32: return "int32";
    case DType::kUInt8: return "uint8";
  }
  return "?";
}

constexpr bool is_floating(DType t) { return t <= DType::kFloat64; }

}  // namespace lockstep
