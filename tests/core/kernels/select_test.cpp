// Selections, powers, running sums and losses: values at their edges, ties, NaN and refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/gradcheck.h"

namespace lockstep::select_test {
namespace {

using testing::random_tensor;

TEST(Selections, TreatEqualValuesAndNanAsDocumented) {
  const double nan = NAN, inf = INFINITY;
  const Tensor a = Tensor::of(std::vector<double>{1, 2, 2, nan, 1, inf}, {6}),
               b = Tensor::of(std::vector<double>{2, 1, 2, 1, nan, inf}, {6});
  using Mask = std::vector<double>;
  EXPECT_EQ(lt(a, b).to_vector(), (Mask{1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(le(a, b).to_vector(), (Mask{1, 0, 1, 0, 0, 1}));
  EXPECT_EQ(gt(a, b).to_vector(), (Mask{0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(ge(a, b).to_vector(), (Mask{0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(eq(a, b).to_vector(), (Mask{0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(ne(a, b).to_vector(), (Mask{1, 1, 0, 1, 1, 0}));
  const Tensor of_ids = eq(Tensor::of(std::vector<int32_t>{7, 16777217}, {2}), Tensor::full({1}, 7, DType::kInt32));
  EXPECT_EQ(of_ids.dtype(), DType::kInt32);
  EXPECT_EQ(of_ids.to_vector(), (Mask{1, 0}));
  const std::vector<double> larger = maximum(a, b).to_vector(), smaller = minimum(a, b).to_vector(),
                            within = clamp(a, 1.5, 5).to_vector();
  for (size_t i = 0; i < 6; ++i) {
    const double x = a.to_vector()[i], y = b.to_vector()[i];
    if (x != x || y != y) {
      EXPECT_TRUE(larger[i] != larger[i] && smaller[i] != smaller[i]) << i;
    } else {
      EXPECT_EQ(larger[i], std::max(x, y));
      EXPECT_EQ(smaller[i], std::min(x, y));
    }
    if (x == x) EXPECT_EQ(within[i], std::min(std::max(x, 1.5), 5.0));
    else EXPECT_TRUE(within[i] != within[i]);
  }
  // The other side's infinity does not become NaN.
  Tensor x = Tensor::of(std::vector<double>{1, 2}, {2}), y = Tensor::of(std::vector<double>{inf, 2}, {2});
  require_grad(x), require_grad(y);
  backward(sum(where(lt(x, y), mul(x, x), mul(y, y))));
  EXPECT_EQ(grad_of(x).to_vector(), (Mask{2, 0}));
  x = Tensor::of(std::vector<double>{-3, 0, 3}, {3});
  require_grad(x);
  backward(sum(abs(x)));
  EXPECT_EQ(grad_of(x).to_vector(), (Mask{-1, 0, 1}));
}

TEST(Power, FollowsTheCLibraryAtItsEdges) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64})
    for (double exponent : {0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 63.0, 64.0, 101.0, -101.0, 2.5}) {
      const Tensor x =
          raw::cast(Tensor::of(std::vector<double>{0, 1, -1, 2, -2, 0.5, -0.75, INFINITY, NAN}, {9}), dtype);
      const auto in = x.to_vector(), y = pow(x, exponent).to_vector();
      for (size_t i = 0; i < in.size(); ++i) {
        double expected = std::pow(in[i], exponent);
        if (dtype == DType::kFloat32) expected = static_cast<double>(static_cast<float>(expected));
        if (expected != expected) EXPECT_TRUE(y[i] != y[i]) << in[i] << "^" << exponent << " gave " << y[i];
        else if (std::isinf(expected)) EXPECT_EQ(y[i], expected) << in[i] << "^" << exponent;
        else
          EXPECT_NEAR(y[i], expected, std::max(2e-6, 1e-7 * std::abs(exponent)) * std::abs(expected) + 1e-37)
              << in[i] << "^" << exponent;
      }
    }
  Tensor x = Tensor::of(std::vector<double>{0, 3}, {2});
  require_grad(x);
  backward(sum(add(pow(x, 2), pow(x, 0))));
  EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{0, 6}));
}

TEST(TopK, TakesTheFirstOfEqualElements) {
  const double inf = INFINITY;
  Tensor x = Tensor::of(std::vector<double>{3, 7, 7, -inf, 7, 1, NAN, -inf, 0, -inf, 0, inf}, {2, 6});
  require_grad(x);
  const TopK top = topk(x, 5);
  EXPECT_EQ(top.indices.dtype(), DType::kInt32);
  EXPECT_EQ(top.indices.to_vector(), (std::vector<double>{1, 2, 4, 0, 5, 0, 5, 2, 4, 1}));
  EXPECT_EQ(topk(x.slice(0, 0, 1), 6).values.to_vector(), (std::vector<double>{7, 7, 7, 3, 1, -inf}));
  EXPECT_EQ(argmax(x).to_vector(), (std::vector<double>{1, 0}));
  EXPECT_EQ(argmax(x).shape(), Shape({2}));
  Tensor y = Tensor::of(std::vector<double>{3, 7, 7, 2, 2, 9}, {2, 3});
  require_grad(y);
  backward(sum(max(y, {1})));
  EXPECT_EQ(grad_of(y).to_vector(), (std::vector<double>{0, 1, 0, 0, 0, 1}));
  clear_grad(y);
  backward(min(y));
  EXPECT_EQ(grad_of(y).to_vector(), (std::vector<double>{0, 0, 0, 1, 0, 0}));
  for (int64_t k : {0, 4}) EXPECT_THROW(topk(y, k), Error);
}

TEST(Cumsum, AddsInOrder) {
  const Tensor x = random_tensor({3, 1000}, 1, -1, 1, DType::kFloat32), y = cumsum(x);
  const auto in = x.to_vector<float>(), out = y.to_vector<float>();
  for (size_t row = 0; row < 3; ++row) {
    float total = 0;
    for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(out[row * 1000 + i], total += in[row * 1000 + i]);
  }
}

// In bf16, too, many small additions are not lost.
TEST(ScatterAdd, AddsManyToOneInFp32) {
  const Tensor index = Tensor::zeros({1, 1000}, DType::kInt32);
  const Tensor y =
      scatter_add(Tensor::full({1, 2}, 256, DType::kBFloat16), index, Tensor::full({1, 1000}, 0.25, DType::kBFloat16));
  EXPECT_EQ(y.to_vector(), (std::vector<double>{506, 256}));
  EXPECT_EQ(y.dtype(), DType::kBFloat16);
}

TEST(Gather, RefusesIndicesThatDoNotFit) {
  const Tensor x = Tensor::zeros({2, 3});
  try {
    gather(x, Tensor::of(std::vector<int32_t>{0, 1, 2, 3}, {2, 2}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kBadData);
    EXPECT_STREQ(e.what(), "gather or scatter_add: index 3 at position 3 is outside the last dimension's 3 elements");
  }
  const Tensor index = Tensor::zeros({1, 2}, DType::kInt32);
  EXPECT_THROW(gather(x, index), Error) << "one row of indices for two";
  EXPECT_THROW(gather(x, Tensor::zeros({2, 2})), Error) << "no integers";
  EXPECT_THROW(scatter_add(x, Tensor::zeros({2, 2}, DType::kInt32), Tensor::zeros({2, 3})), Error);
}

TEST(Views, SplitStackAndPad) {
  const Tensor x = Tensor::of(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(split(x, {1, 2}, 1)[1].to_vector(), (std::vector<double>{2, 3, 5, 6}));
  EXPECT_EQ(stack({x, x}, -1).to_vector(), (std::vector<double>{1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6}));
  EXPECT_EQ(stack({x, x, x}, 0).shape(), Shape({3, 2, 3}));
  EXPECT_EQ(pad(x, {{0, 1}, {1, 0}}, 9).to_vector(), (std::vector<double>{9, 1, 2, 3, 9, 4, 5, 6, 9, 9, 9, 9}));
  EXPECT_THROW(split(x, {1, 1}, 1), Error);
  EXPECT_THROW(stack({x, Tensor::zeros({3})}, 0), Error);
  EXPECT_THROW(pad(x, {{1, 1}}), Error);
}

TEST(Losses, HaveTheirLimits) {
  const Tensor x = random_tensor({4, 9}, 1, -3, 3), t = Tensor::of(std::vector<int32_t>{3, 8, kIgnoreIndex, 0}, {4});
  const double cross = cross_entropy(x, t).item();
  EXPECT_NEAR(focal_loss(x, t, 0).item(), cross, 1e-12) << "a gamma of 0 is cross-entropy";
  // Smoothed, by the formula.
  double all = 0;
  const auto log_p = log_softmax(x).to_vector();
  for (size_t i = 0; i < log_p.size(); ++i) all -= i / 9 == 2 ? 0 : log_p[i] / 9;
  EXPECT_NEAR(cross_entropy(x, t, kIgnoreIndex, 0.3).item(), 0.7 * cross + 0.3 * all, 1e-12);
  EXPECT_THROW(cross_entropy(x, t, kIgnoreIndex, 1.5), Error);
  const Tensor hard = Tensor::of(std::vector<double>{0, 1, 0}, {3});
  EXPECT_EQ(kl_div(Tensor::of(std::vector<double>{-9, -0.5, -2}, {3}), hard).item(), 0.5) << "a target of 0 adds 0";
  const Tensor far = Tensor::of(std::vector<double>{-800, 800, 800}, {3});
  EXPECT_EQ(bce_with_logits(far, hard).item(), 800);
  EXPECT_NEAR(binary_focal_loss(far, hard).item(), 0.75 * 800, 1e-9);
  EXPECT_EQ(dice_loss(stack({hard, hard}, 0), stack({hard, hard}, 0)).item(), 0);
  EXPECT_THROW(mse_loss(x, hard), Error);
  for (DType dtype : {DType::kBFloat16, DType::kFloat16})
    EXPECT_EQ(mse_loss(Tensor::full({300}, 17, dtype), Tensor::zeros({300}, dtype)).item(), 86700) << "summed in fp32";
}

}  // namespace
}  // namespace lockstep::select_test
