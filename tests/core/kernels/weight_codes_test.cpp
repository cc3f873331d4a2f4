// Weights in codes: those of bitsandbytes, what they decode to in every type, and products with them.
#include "core/state/weight_coder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/autograd/node.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/gradcheck.h"

namespace lockstep::weight_codes_test {
namespace {

// 600 blocks and a part of one, of which one is zeros.
constexpr int64_t kCount = 64 * 600 + 20;
std::vector<float> some_values() {
  std::vector<float> out;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double u = static_cast<double>(i * 2654435761u % (uint64_t{1} << 32)) / 2147483648.0 - 1;
    out.push_back(i / 64 == 5 ? 0.0f : static_cast<float>(u * u * u * static_cast<double>(1 + i / 64 % 7)));
  }
  return out;
}

WeightCoder coder_of_all(DType coding, const Shape& shape, const std::vector<float>& values) {
  return coder_of(coding, shape,
                  [&](IndexRange r, float* out) { std::copy(values.begin() + r.begin, values.begin() + r.end, out); });
}

std::string hex(const uint8_t* bytes, int64_t n) {
  std::string out;
  for (int64_t i = 0; i < n; ++i) {
    constexpr const char* kDigits = "0123456789abcdef";
    out += kDigits[bytes[i] >> 4], out += kDigits[bytes[i] & 15];
  }
  return out;
}

// A tensor of codes with these values.
Tensor coded(DType coding, const Shape& shape, const std::vector<float>& values) {
  const Tensor out = Tensor::empty(shape, coding);
  fill_coded({"w", shape, 0, out.flatten()},
             [&](IndexRange r, float* to) { std::copy(values.begin() + r.begin, values.begin() + r.end, to); });
  return out;
}

// quantize_4bit and create_dynamic_map of bitsandbytes 0.50.2; the scales' mean is formed in fp64.
TEST(Nf4, HasTheCodesAndScalesOfBitsandbytes) {
  const std::vector<float> values = some_values();
  const Tensor codes = coded(DType::kNf4, {kCount}, values);
  ASSERT_EQ(codes.bytes(), 601 * 36);
  const auto* bytes = static_cast<const uint8_t*>(codes.read());
  const auto block = [&](int64_t b) { return bytes + 36 * b; };
  const auto scale = [&](int64_t b) {
    float out;
    std::memcpy(&out, block(b) + 32, sizeof out);
    return out;
  };
  EXPECT_EQ(hex(block(0), 32), "075b7287e74a7176c7387f75b7186d7497076c7287e75a7176d7397f75b7286e");
  EXPECT_EQ(hex(block(5), 4), "77777777");
  EXPECT_EQ(hex(block(6), 32), "7e74a7076c7387f75b7186d7497076c7287e74a7176d7397f75b7186e74a7076");
  EXPECT_EQ(hex(block(300), 32), "6c7287e75a7176d7397f75b7286e74a7076c7387f75a7186d7397076c7287e74");
  EXPECT_EQ(hex(block(600), 10), "7397f75b7186e7397076");
  EXPECT_EQ(scale(0), 0x1.02aa64p+0f);
  EXPECT_EQ(scale(1), 0x1.f05bb8p+0f);
  EXPECT_EQ(scale(5), 0x1.bf6cp-6f);
  EXPECT_EQ(scale(6), 0x1.a5fb72p+2f);
  EXPECT_EQ(scale(300), 0x1.b34872p+2f);
  EXPECT_EQ(scale(599), 0x1.3d4766p+2f);
  EXPECT_EQ(scale(600), 0x1.645d84p+2f);
}

// What is in nf4 already keeps its codes and scales, which another rounding of the scales would change.
TEST(Nf4, KeepsWhatIsInNf4Already) {
  const std::vector<float> values = some_values();
  std::vector<float> once = values;
  coder_of_all(DType::kNf4, {kCount}, values).round(0, once.data(), kCount);
  std::vector<float> twice = once;
  coder_of_all(DType::kNf4, {kCount}, once).round(0, twice.data(), kCount);
  EXPECT_EQ(twice, once);
  const Tensor codes = coded(DType::kNf4, {kCount}, values), again = coded(DType::kNf4, {kCount}, once);
  EXPECT_EQ(std::memcmp(codes.read(), again.read(), static_cast<size_t>(5 * 36)), 0);
  once[1] += 0.01f;  // one value that is none of its block's
  std::vector<float> other = once;
  coder_of_all(DType::kNf4, {kCount}, once).round(0, other.data(), kCount);
  int changed = 0;
  for (int64_t i = 64; i < kCount; ++i) changed += other[static_cast<size_t>(i)] != once[static_cast<size_t>(i)];
  EXPECT_GT(changed, 0);
}

TEST(Int8, HasRoundedPartsOfTheRowsLargest) {
  std::vector<float> values(2 * 64, 0.0f);
  values[0] = -12.7f, values[1] = 0.25f, values[2] = 0.35f;  // 2.5 and 3.5 of 127: to even, and above
  values[64] = 1e-3f;
  const Tensor codes = coded(DType::kInt8, {2, 64}, values);
  ASSERT_EQ(codes.bytes(), 2 * 68);
  const auto* bytes = static_cast<const uint8_t*>(codes.read());
  EXPECT_EQ(hex(bytes, 4), "81020400");
  EXPECT_EQ(hex(bytes + 68, 2), "7f00");
  EXPECT_EQ(codes.to_vector()[0], static_cast<double>(-127 * (12.7f / 127)));
  EXPECT_EQ(coded(DType::kInt8, {1, 64}, std::vector<float>(64)).to_vector(), std::vector<double>(64));
}

class Codes : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Both, Codes, ::testing::Values(DType::kNf4, DType::kInt8),
                         [](const auto& p) { return std::string(to_text(p.param)); });

TEST_P(Codes, DecodeToOneProductRoundedOnce) {
  const Shape shape{6, 6400};
  std::vector<float> values = some_values();
  values.resize(static_cast<size_t>(shape.numel()));
  const Tensor codes = coded(GetParam(), shape, values);
  const WeightCoder coder = coder_of_all(GetParam(), shape, values);
  std::vector<float> rounded = values;
  coder.round(0, rounded.data(), shape.numel());
  const Tensor wanted = Tensor::of(rounded, shape);
  for (DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
    EXPECT_EQ(raw::cast(codes, type).to_vector(), raw::cast(wanted, type).to_vector()) << to_text(type);
  // A slice has the codes of the whole.
  const Tensor part = Tensor::empty({128}, GetParam());
  fill_coded({"w", shape, 640, part},
             [&](IndexRange r, float* to) { std::copy(values.begin() + r.begin, values.begin() + r.end, to); });
  EXPECT_EQ(part.to_vector(), codes.flatten().slice(0, 640, 768).to_vector());
  double far = 0;
  for (size_t i = 0; i < values.size(); ++i) far = std::max(far, std::abs(double{values[i]} - rounded[i]));
  EXPECT_LT(far, GetParam() == DType::kNf4 ? 1.2 : 0.03);
  EXPECT_GT(far, 0.001);
}

// A product has the bits of one with a dense frozen weight of the same values, forward and backward.
TEST_P(Codes, ProductsHaveTheBitsOfDenseWeights) {
  const Shape shape{96, 128};
  std::vector<float> values = some_values();
  values.resize(static_cast<size_t>(shape.numel()));
  const Tensor codes = coded(GetParam(), shape, values);
  for (DType type : {DType::kFloat32, DType::kBFloat16}) {
    const auto run = [&](const Tensor& weight) {
      Tensor x = raw::cast(testing::random_tensor({3, 17, 128}, 1, -1, 1, DType::kFloat32), type);
      require_grad(x);
      const Tensor y = linear(x, weight);
      backward(sum(mul(y, y)));
      return std::pair(y.to_vector(), grad_of(x).to_vector());
    };
    const auto found = run(codes), dense = run(raw::cast(codes, type));
    EXPECT_EQ(found.first, dense.first) << to_text(type);
    EXPECT_EQ(found.second, dense.second) << to_text(type);
  }
}

// 1 / 1e-39 is not finite.
TEST_P(Codes, TakeGroupsWithoutMagnitudeForZeros) {
  for (double value : coded(GetParam(), {2, 64}, std::vector<float>(128, 1e-39f)).to_vector())
    EXPECT_LT(std::abs(value), 1e-37);
}

TEST_P(Codes, KeepTheirBlocksWhole) {
  const Tensor codes = Tensor::empty({256}, GetParam());
  EXPECT_EQ(codes.bytes(), 4 * bytes_of_block(GetParam()));
  EXPECT_EQ(codes.as_bytes().numel(), codes.bytes());
  EXPECT_EQ(codes.slice(0, 64, 128).as_bytes().offset(), bytes_of_block(GetParam()));
  EXPECT_THROW(codes.slice(0, 1, 65).read(), Error);
  EXPECT_THROW(raw::copy(codes, Tensor::zeros({256})), Error);
}

}  // namespace
}  // namespace lockstep::weight_codes_test
