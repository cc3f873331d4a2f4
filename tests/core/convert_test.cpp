// Conversions among all types, at every instruction-set level, against exact rules computed with integers and fp64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/philox.h"
#include "core/device/thread_pool.h"
#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"

namespace lockstep::convert_test {
namespace {

constexpr DType kAll[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                          DType::kInt64,   DType::kInt32,    DType::kUInt8};

// A binary format of 1 + exponent + mantissa bits, in the manner of IEEE 754.
struct Format {
  int exponent_bits, mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }

  double value(uint32_t bits) const {
    const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const double sign = bits >> (mantissa_bits + exponent_bits) & 1 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return mantissa ? std::nan("") : sign * HUGE_VAL;
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias() - mantissa_bits);
    return sign * std::ldexp(mantissa | 1u << mantissa_bits, exponent - bias() - mantissa_bits);
  }
  // To nearest, ties to even; beyond the largest number plus half a step, infinity. NaN: a quiet one.
  uint32_t round(double x) const {
    const uint32_t sign = std::signbit(x) ? 1u << (mantissa_bits + exponent_bits) : 0;
    const uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
    if (x != x) return infinity | 1u << (mantissa_bits - 1);
    if (x == 0) return sign;
    if (std::isinf(x)) return sign | infinity;
    const int exponent = std::max(std::ilogb(x), 1 - bias());
    const double steps =
        std::nearbyint(std::ldexp(std::abs(x), mantissa_bits - exponent));  // of 2^(exponent - mantissa_bits)
    const double rounded = std::ldexp(steps, exponent - mantissa_bits);
    if (std::ilogb(rounded) > bias()) return sign | infinity;
    if (rounded == 0 || std::ilogb(rounded) < 1 - bias()) return sign | static_cast<uint32_t>(steps);
    const int e = std::ilogb(rounded);
    const uint32_t mantissa = static_cast<uint32_t>(std::ldexp(rounded, mantissa_bits - e)) - (1u << mantissa_bits);
    return sign | static_cast<uint32_t>(e + bias()) << mantissa_bits | mantissa;
  }
};
constexpr Format kBf16{8, 7}, kFp16{5, 10}, kFp32{8, 23};
const Format& format_of(DType t) { return t == DType::kBFloat16 ? kBf16 : kFp16; }

std::vector<IsaLevel> levels() {
  std::vector<IsaLevel> out;
  for (IsaLevel level : kIsaLevels)
    if (has_isa_level(level)) out.push_back(level);
  return out;
}

void copy_at(IsaLevel level, const Tensor& out, const Tensor& in) {
  ThreadPool pool(1);
  kernels(level).pointwise(pool, PointwiseOp::kCopy, raw::pointwise_args({out}, {in}));
}

template <class T>
Tensor of_bits(const std::vector<T>& bits, DType dtype) {
  Tensor t = Tensor::empty({static_cast<int64_t>(bits.size())}, dtype);
  memcpy(t.write(), bits.data(), bits.size() * sizeof(T));
  return t;
}
template <class T>
std::vector<T> bits_in(const Tensor& t) {
  std::vector<T> out(static_cast<size_t>(t.numel()));
  memcpy(out.data(), t.read(), out.size() * sizeof(T));
  return out;
}

// fp32 bit patterns: every exponent with mantissas at and beside the ties of both 16-bit formats, and random ones.
std::vector<uint32_t> hard_floats() {
  std::vector<uint32_t> out;
  for (uint32_t sign : {0u, 0x80000000u})
    for (uint32_t exponent = 0; exponent < 256; ++exponent)
      for (uint32_t mantissa :
           {0u,      1u,       0xFFFu,   0x1000u,  0x1001u,   0x2FFFu,   0x3000u,   0x3001u,   0x7FFFu,   0x8000u,
            0x8001u, 0x17FFFu, 0x18000u, 0x18001u, 0x400000u, 0x7FEFFFu, 0x7FF000u, 0x7F7FFFu, 0x7F8000u, 0x7FFFFFu})
        out.push_back(sign | exponent << 23 | mantissa);
  for (uint64_t i = 0; i < 20000; ++i) out.push_back(philox(11, i, 0).v[0]);
  return out;
}

TEST(Convert, EverySixteenBitValueWidensExactly) {
  std::vector<uint16_t> every(65536);
  for (size_t i = 0; i < every.size(); ++i) every[i] = static_cast<uint16_t>(i);
  for (DType dtype : {DType::kBFloat16, DType::kFloat16})
    for (IsaLevel level : levels()) {
      const Tensor narrow = of_bits(every, dtype), wide = Tensor::empty(narrow.shape()),
                   back = Tensor::empty(narrow.shape(), dtype);
      copy_at(level, wide, narrow);
      copy_at(level, back, wide);
      const auto bits = bits_in<uint32_t>(wide);
      const auto again = bits_in<uint16_t>(back);
      for (size_t i = 0; i < every.size(); ++i) {
        const double expected = format_of(dtype).value(static_cast<uint32_t>(i)), got = kFp32.value(bits[i]);
        if (expected != expected) {
          ASSERT_TRUE(got != got) << i;
          ASSERT_TRUE(std::isnan(format_of(dtype).value(again[i]))) << i;
          continue;
        }
        ASSERT_EQ(got, expected) << to_text(dtype) << " bits " << i << " at level " << kernels(level).isa;
        ASSERT_EQ(std::signbit(got), std::signbit(expected));
        ASSERT_EQ(again[i], every[i]) << "there and back, " << to_text(dtype) << " at level " << kernels(level).isa;
      }
    }
}

// Subnormals, ties, overflow, infinity, NaN; dense (vector instructions) and strided (scalar) copies.
TEST(Convert, NarrowingRoundsToNearestEven) {
  const std::vector<uint32_t> patterns = hard_floats();
  const int64_t n = static_cast<int64_t>(patterns.size());
  for (DType dtype : {DType::kBFloat16, DType::kFloat16})
    for (IsaLevel level : levels())
      for (int64_t stride : {1, 2}) {
        std::vector<uint32_t> spread(patterns.size() * static_cast<size_t>(stride));
        for (size_t i = 0; i < patterns.size(); ++i) spread[i * static_cast<size_t>(stride)] = patterns[i];
        const Tensor all = of_bits(spread, DType::kFloat32).reshape({n, stride}).slice(1, 0, 1);
        const Tensor out = Tensor::empty({n, stride}, dtype).slice(1, 0, 1);
        copy_at(level, out, all);
        const uint16_t* got = static_cast<const uint16_t*>(out.read());
        for (int64_t i = 0; i < n; ++i) {
          const double x = kFp32.value(patterns[static_cast<size_t>(i)]);
          const uint32_t bits = got[i * stride], expected = format_of(dtype).round(x);
          if (x != x) ASSERT_TRUE(std::isnan(format_of(dtype).value(bits))) << "NaN stays NaN";
          else
            ASSERT_EQ(bits, expected) << to_text(dtype) << " of fp32 bits " << patterns[static_cast<size_t>(i)] << " = "
                                      << x << ", level " << kernels(level).isa << ", stride " << stride;
        }
      }
}

TEST(Convert, Fp64RoundsToFp32AsTheLanguageDoes) {
  std::vector<double> values{0.0,      -0.0,      1.0,         1e300,        -1e300, 3.4028235677973366e38,
                             HUGE_VAL, -HUGE_VAL, 1 + 0x1p-24, 1 + 0x1.8p-23};
  for (uint64_t i = 0; i < 5000; ++i) {
    const Philox4 r = philox(5, i, 1);
    values.push_back(std::ldexp(static_cast<double>(r.v[0]) * 0x1p-32 - 0.5 + r.v[1] * 0x1p-60,
                                static_cast<int>(r.v[2] % 200) - 100));
  }
  const Tensor in = Tensor::of(values, {static_cast<int64_t>(values.size())}), out = raw::cast(in, DType::kFloat32);
  const float* got = out.values<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const float expected = static_cast<float>(values[i]);
    ASSERT_EQ(memcmp(&got[i], &expected, 4), 0) << values[i];
  }
}

TEST(Convert, SmallWholeNumbersSurviveEveryPairOfTypes) {
  const std::vector<double> wanted{0, 1, 2, 3, 7, 100, 127, 128, 254, 255};
  for (DType from : kAll)
    for (DType to : kAll) {
      const Tensor a = raw::cast(Tensor::of(wanted, {10}), from);
      EXPECT_EQ(raw::cast(a, to).to_vector(), wanted) << to_text(from) << " to " << to_text(to);
      // Over strides too.
      EXPECT_EQ(raw::cast(a.reshape({5, 2}).transpose(0, 1), to).transpose(0, 1).to_vector(), wanted);
      if (from == DType::kUInt8 || to == DType::kUInt8) continue;
      const std::vector<double> negative{-1, -2, -100, -128};
      EXPECT_EQ(raw::cast(raw::cast(Tensor::of(negative, {4}), from), to).to_vector(), negative)
          << to_text(from) << " to " << to_text(to);
    }
}

TEST(Convert, FloatsDropTheirFractionAsWholeNumbers) {
  const Tensor t = Tensor::of(std::vector<float>{1.9f, -1.9f, 0.5f, 100.99f}, {4});
  EXPECT_EQ(raw::cast(t, DType::kInt32).to_vector(), (std::vector<double>{1, -1, 0, 100}));
  EXPECT_EQ(raw::cast(t, DType::kInt64).to_vector(), (std::vector<double>{1, -1, 0, 100}));
}

// A copy between equal types is no arithmetic: also of whole numbers that no fp64 holds.
TEST(Convert, ACopyWithinOneTypeKeepsEveryBit) {
  const std::vector<int64_t> big{(int64_t(1) << 53) + 1,
                                 std::numeric_limits<int64_t>::max(),
                                 std::numeric_limits<int64_t>::min(),
                                 -1,
                                 0x7FF0000000000001,
                                 1};
  const Tensor t = Tensor::of(big, {2, 3});
  EXPECT_EQ(raw::contiguous(t.transpose(0, 1)).transpose(0, 1).to_vector<int64_t>(), big);
  const Tensor out = Tensor::empty({2, 3}, DType::kInt64);
  raw::copy(out, t);
  EXPECT_EQ(out.to_vector<int64_t>(), big);
  const std::vector<uint32_t> patterns = hard_floats();
  const Tensor floats = of_bits(patterns, DType::kFloat32), same = Tensor::empty(floats.shape());
  raw::copy(same, floats);
  EXPECT_EQ(bits_in<uint32_t>(same), patterns);
}

}  // namespace
}  // namespace lockstep::convert_test
