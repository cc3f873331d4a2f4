// Convolutions with options, pooling, upsampling and group norm: values that follow from their definitions, and errors.
#include <gtest/gtest.h>

#include <cmath>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/gradcheck.h"

namespace lockstep::image_ops_test {
namespace {

using testing::random_tensor;
using Values = std::vector<double>;

void expect_near(const Tensor& got, const Tensor& expected, double tolerance) {
  ASSERT_EQ(got.shape(), expected.shape());
  const auto a = got.to_vector(), b = expected.to_vector();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << "element " << i;
}

template <class F>
void expect_error(const std::string& beginning, F f) {
  try {
    f();
    ADD_FAILURE() << "no error: " << beginning;
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find(beginning), 0u) << e.what();
  }
}

Tensor images(const Values& values, int64_t height, int64_t width) {
  return Tensor::of(values, {1, height, width, static_cast<int64_t>(values.size()) / (height * width)});
}

TEST(Conv2d, GroupsAreConvolutionsOfTheirOwn) {
  for (const auto& [channels, out, groups] : {std::tuple{6, 4, 2}, std::tuple{6, 6, 6}, std::tuple{3, 9, 3}}) {
    const Tensor x = random_tensor({2, 7, 8, channels}, 1), w = random_tensor({out, 3, 2, channels / groups}, 2),
                 b = random_tensor({out}, 3);
    const auto part = [&, groups = groups](const Tensor& t, int dim, int g) {
      const int64_t n = t.dim(dim) / groups;
      return slice(t, dim, g * n, (g + 1) * n);
    };
    std::vector<Tensor> parts;
    for (int g = 0; g < groups; ++g)
      parts.push_back(conv2d(part(x, 3, g), part(w, 0, g), part(b, 0, g), {.stride = 2, .padding = 1, .dilation = 2}));
    expect_near(conv2d(x, w, b, {.stride = 2, .padding = 1, .dilation = 2, .groups = groups}), concat(parts, 3), 1e-14);
  }
}

TEST(Conv2d, DilationIsAKernelWithZerosBetween) {
  const Tensor x = random_tensor({2, 9, 8, 3}, 1), w = random_tensor({4, 3, 2, 3}, 2);
  const Values taps = w.to_vector();
  Values wide(4 * 5 * 3 * 3);
  for (size_t o = 0; o < 4; ++o)
    for (size_t ky = 0; ky < 3; ++ky)
      for (size_t kx = 0; kx < 2; ++kx)
        for (size_t c = 0; c < 3; ++c)
          wide[((o * 5 + 2 * ky) * 3 + 2 * kx) * 3 + c] = taps[((o * 3 + ky) * 2 + kx) * 3 + c];
  expect_near(conv2d(x, w, {}, {.padding = 2, .dilation = 2}),
              conv2d(x, Tensor::of(wide, {4, 5, 3, 3}), {}, {.padding = 2}), 1e-14);
}

TEST(Conv2d, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({1, 5, 5, 4});
  expect_error("conv2d: images fp32[1, 5, 5, 4] on cpu (B, H, W, C) with weight fp32[6, 3, 3, 4]", [&] {
    conv2d(x, Tensor::zeros({6, 3, 3, 4}), {}, {.groups = 2});
  });
  expect_error("conv2d: images fp32[1, 5, 5, 4] on cpu (B, H, W, C) with weight fp32[5, 3, 3, 2]", [&] {
    conv2d(x, Tensor::zeros({5, 3, 3, 2}), {}, {.groups = 2});
  });
  expect_error("conv2d: images fp32[1, 5, 5, 4] on cpu are smaller than weight fp32[1, 3, 3, 4] on cpu with dilation 3",
               [&] {
                 conv2d(x, Tensor::zeros({1, 3, 3, 4}), {}, {.dilation = 3});
               });
}

TEST(AvgPool2d, IsTheMeanOfEachWindow) {
  const Tensor x = images({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3, 3);
  EXPECT_EQ(avg_pool2d(x, 2, 1).to_vector(), (Values{3, 4, 6, 7}));
  EXPECT_EQ(avg_pool2d(x, 2, 2, 1).to_vector(), (Values{0.25, 1.25, 2.75, 7}));
  EXPECT_EQ(avg_pool2d(x, 2, 2, 1, false).to_vector(), (Values{1, 2.5, 5.5, 7}));
  expect_error("avg_pool2d: fp64[1, 3, 3, 1] on cpu with window 2, stride 1, padding 2",
               [&] { avg_pool2d(x, 2, 1, 2); });
}

TEST(AdaptiveAvgPool2d, DividesTheImage) {
  const Tensor x = images({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 2, 5);
  EXPECT_EQ(adaptive_avg_pool2d(x, 1, 1).to_vector(), (Values{5.5}));
  EXPECT_EQ(adaptive_avg_pool2d(x, 1, 2).to_vector(), (Values{4.5, 6.5}));  // columns 0 to 2, and 2 to 4
  EXPECT_EQ(adaptive_avg_pool2d(x, 2, 5).to_vector(), x.to_vector());
  expect_error("adaptive_avg_pool2d: images fp64[1, 2, 5, 1] on cpu (B, H, W, C) to 0 x 3",
               [&] { adaptive_avg_pool2d(x, 0, 3); });
}

TEST(Upsample2d, RepeatsOrInterpolates) {
  const Tensor x = images({0, 1, 4, 5}, 2, 2);
  EXPECT_EQ(upsample2d(Upsampling::kNearest, x, 2).to_vector(),
            (Values{0, 0, 1, 1, 0, 0, 1, 1, 4, 4, 5, 5, 4, 4, 5, 5}));
  EXPECT_EQ(upsample2d(Upsampling::kNearest, x, 2, 3).to_vector(), (Values{0, 0, 1, 4, 4, 5}));
  EXPECT_EQ(upsample2d(Upsampling::kBilinear, x, 2).to_vector(),
            (Values{0, 0.25, 0.75, 1, 1, 1.25, 1.75, 2, 3, 3.25, 3.75, 4, 4, 4.25, 4.75, 5}));
  EXPECT_EQ(upsample2d(Upsampling::kBilinear, x, 1, 1).to_vector(), (Values{2.5}));
  // Weights 0 read no pixel: an image of the same size keeps what is not finite where it is.
  const Tensor infinite = images({1, INFINITY, 3, 4}, 2, 2);
  EXPECT_EQ(upsample2d(Upsampling::kBilinear, infinite, 2, 2).to_vector(), infinite.to_vector());
  expect_error("upsample2d: fp64[2] on cpu is no [B, H, W, C]",
               [] { upsample2d(Upsampling::kNearest, Tensor::zeros({2}, DType::kFloat64), 2); });
}

// In fp32 too, and far from 0.
TEST(GroupNorm, NormalisesEachGroupOfEachSample) {
  const Tensor x = random_tensor({3, 40, 30, 6}, 1, 99, 101, DType::kFloat32),
               y = group_norm(x, 2, Tensor::full({6}, 1), Tensor::zeros({6}));
  const auto got = y.to_vector();
  for (size_t sample = 0; sample < 3; ++sample)
    for (size_t group = 0; group < 2; ++group) {
      double sum = 0, squares = 0;
      for (size_t p = 0; p < 1200; ++p)
        for (size_t c = 0; c < 3; ++c) {
          const double v = got[(sample * 1200 + p) * 6 + group * 3 + c];
          sum += v, squares += v * v;
        }
      EXPECT_NEAR(sum / 3600, 0, 1e-4);
      EXPECT_NEAR(squares / 3600, 1, 1e-3);
    }
}

TEST(GroupNorm, OfOneGroupIsLayerNormOverAll) {
  const Tensor x = random_tensor({2, 5, 4}, 1), flat = reshape(x, {2, 20});
  const Tensor one = Tensor::full({4}, 1, DType::kFloat64), zero = Tensor::zeros({4}, DType::kFloat64);
  const Tensor expected = layer_norm(flat, Tensor::full({20}, 1, DType::kFloat64), {});
  expect_near(reshape(group_norm(x, 1, one, zero), {2, 20}), expected, 1e-12);
  expect_error("group_norm: fp64[2, 5, 4] on cpu in 3 groups with weight fp64[4] on cpu",
               [&] { group_norm(x, 3, one, zero); });
}

}  // namespace
}  // namespace lockstep::image_ops_test
