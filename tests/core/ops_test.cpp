// Every operation: gradients against central differences in fp64, and fp32, bf16, fp16 against fp64.
#include "core/ops/ops.h"

#include <gtest/gtest.h>

#include "tests/core/op_cases.h"
#include "tests/support/each_device.h"
#include "tests/support/gradcheck.h"

namespace lockstep {
namespace {

using testing::each_dtype;
using testing::gradcheck;
using testing::op_cases;
using testing::OpCase;
using testing::random_tensor;

class EachOp : public ::testing::TestWithParam<OpCase> {};

TEST_P(EachOp, BackwardMatchesCentralDifferences) { gradcheck(GetParam().f, GetParam().inputs, GetParam().tolerance); }
TEST_P(EachOp, LowerPrecisionMatchesFp64) { each_dtype(GetParam().f, GetParam().inputs, GetParam().scale); }

INSTANTIATE_TEST_SUITE_P(Ops, EachOp, ::testing::ValuesIn(op_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Dropout, KeepsByGlobalSampleAndSiteOnly) {
  Tensor x = random_tensor({4, 3, 50}, 1, 1, 2, DType::kFloat32);
  auto run = [&](std::vector<int64_t> samples, Tensor in, uint64_t site, int64_t step) {
    WithRandom with({42, step, std::make_shared<const std::vector<int64_t>>(std::move(samples))});
    return dropout(in, 0.4, site).to_vector<float>();
  };
  const auto all = run({10, 11, 12, 13}, x, 5, 7);
  // Two samples alone give the same bits as within four.
  const auto two = run({12, 13}, x.slice(0, 2, 4), 5, 7);
  for (size_t i = 0; i < two.size(); ++i) ASSERT_EQ(two[i], all[300 + i]);
  EXPECT_NE(run({10, 11, 12, 13}, x, 6, 7), all);
  EXPECT_NE(run({10, 11, 12, 13}, x, 5, 8), all);
  const auto in = x.to_vector<float>();
  int64_t dropped = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == 0) ++dropped;
    else ASSERT_NEAR(all[i], in[i] / 0.6f, 1e-6);
  }
  EXPECT_NEAR(static_cast<double>(dropped) / 600, 0.4, 0.08);
}

TEST(Dropout, BackwardUsesTheSameMask) {
  WithRandom with({1, 1, std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{3, 4})});
  Tensor x = Tensor::full({2, 10}, 1.0);
  require_grad(x);
  Tensor y = dropout(x, 0.5, 9);
  backward(sum(y));
  EXPECT_EQ(grad_of(x).to_vector(), y.to_vector());
}

// The bits of three ops: whatever the types, with one column, without biases, of parameters that others share and that
// were swept before, and where some take no gradient.
TEST(FeedForward, IsThreeOpsToTheBit) {
  auto three_ops = [](const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                      const Tensor& down_bias, Place) { return linear(gelu(linear(x, up, up_bias)), down, down_bias); };
  auto sweep = [&](const auto& op, DType x_dtype, DType dtype, int64_t hidden, bool bias, int frozen) {
    testing::Values out;
    std::vector<Tensor> p;
    for (const Shape& s : {Shape{hidden, 9}, Shape{hidden}, Shape{9, hidden}, Shape{9}}) {
      p.push_back(random_tensor(s, p.size() + 1, -1, 1, dtype));
      require_grad(p.back(), static_cast<int>(p.size()) - 1 != frozen);
    }
    for (uint64_t batch = 0; batch < 2; ++batch) {
      Tensor x = random_tensor({2, 130, 9}, batch + 10, -2, 2, x_dtype);
      require_grad(x, frozen != 4);
      auto block = [&](const Tensor& in) {
        return op(in, p[0], bias ? p[1] : Tensor(), p[2], bias ? p[3] : Tensor(), Place::current());
      };
      const Tensor y = add(block(block(x)), reshape(sum(linear(x, p[0], bias ? p[1] : Tensor()), {2}), {2, 130, 1}));
      out.push_back(y.to_vector());
      backward(sum(mul(cast(y, DType::kFloat32), random_tensor(y.shape(), 99, 0.5, 1.5, DType::kFloat32))));
      if (frozen != 4) out.push_back(grad_of(x).to_vector());
    }
    for (const Tensor& t : p)
      if (const Tensor g = grad_of(t)) out.push_back(g.to_vector());
    return out;
  };
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64})
    for (DType x_dtype : {dtype, DType::kFloat32})
      for (int64_t hidden : {1, 24})
        for (bool bias : {true, false})
          for (int frozen : {-1, 0, 1, 2, 3, 4})
            testing::expect_equal_bits(sweep(feed_forward, x_dtype, dtype, hidden, bias, frozen),
                                       sweep(three_ops, x_dtype, dtype, hidden, bias, frozen),
                                       cat(x_dtype, " by ", dtype, ", ", hidden, bias ? ", bias" : "", ", ", frozen));
}

TEST(FeedForward, OverflowOnTheWayIsSeenInTheResult) {
  const Tensor x = Tensor::full({2, 3}, 1), small = Tensor::full({3, 4}, 1e-30);
  WithAnomaly with;
  for (double scale : {1e38, -1e38}) {
    Tensor up = Tensor::full({4, 3}, scale);
    up.mutable_values<float>()[0] = static_cast<float>(3 * scale);
    try {
      feed_forward(x, up, {}, small, {});
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kNumeric);
      EXPECT_NE(std::string(e.what()).find("feed_forward called at tests/core/ops_test.cpp:"), std::string::npos)
          << e.what();
    }
  }
}

TEST(Ops, ErrorsNameOperationShapesAndCall) {
  try {
    matmul(Tensor::zeros({2, 3}), Tensor::zeros({4, 5}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("matmul: fp32[2, 3] on cpu by fp32[4, 5] on cpu"), 0u) << e.what();
  }
  try {
    cross_entropy(Tensor::zeros({2, 3}), Tensor::of(std::vector<int32_t>{1, 3}, {2}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kBadData);
    EXPECT_NE(std::string(e.what()).find("target 3 at position 1"), std::string::npos) << e.what();
  }
  EXPECT_THROW(embedding(Tensor::zeros({4, 2}), Tensor::of(std::vector<int32_t>{4}, {1})), Error);
}

}  // namespace
}  // namespace lockstep
