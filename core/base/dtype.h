// Element types. bf16 and fp16 are storage formats: arithmetic on them is done in fp32. nf4 and int8 are codes: blocks
// of kCodedBlock elements of a flattened tensor, each its codes and then its scale, fp32
// (core/kernels/codes/weight_codes.h); they are decoded before anything is computed. Plain values.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16, kFloat64, kInt64, kInt32, kUInt8, kNf4, kInt8 };

constexpr bool is_coded(DType t) { return t >= DType::kNf4; }
inline constexpr int64_t kCodedBlock = 64;
constexpr int64_t bytes_of_block(DType t) { return t == DType::kNf4 ? kCodedBlock / 2 + 4 : kCodedBlock + 4; }

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::kFloat32: return 4;
    case DType::kBFloat16: return 2;
    case DType::kFloat16: return 2;
    case DType::kFloat64: return 8;
    case DType::kInt64: return 8;
    case DType::kInt32: return 4;
    case DType::kUInt8: return 1;
    case DType::kNf4:
    case DType::kInt8: break;  // bytes_of() says what they take
  }
  return 0;
}
// The type of a C++ type's elements.
template <class T>
constexpr DType dtype_of() = delete;
template <>
constexpr DType dtype_of<float>() {
  return DType::kFloat32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::kFloat64;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::kInt64;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::kInt32;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::kUInt8;
}
// Of so many elements; of codes those of whole blocks.
constexpr int64_t bytes_of(DType t, int64_t elements) {
  return is_coded(t) ? (elements + kCodedBlock - 1) / kCodedBlock * bytes_of_block(t) : elements * size_of(t);
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
    case DType::kNf4: return "nf4";
    case DType::kInt8: return "int8";
  }
  return "?";
}

constexpr bool is_floating(DType t) { return t <= DType::kFloat64; }

}  // namespace lockstep
