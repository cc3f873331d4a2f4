// Every operation: gradients against central differences in fp64, and fp32, bf16, fp16 against fp64.
#include "core/ops/ops.h"
#include "core/device/allocator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>

#include "core/tensor/raw_ops.h"
#include "tests/core/ops/op_cases.h"
#include "tests/support/each_device.h"
#include "tests/support/gradcheck.h"

namespace lockstep::ops_test {
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

TEST(Silu, IsXTimesSigmoid) {
  const Tensor x = random_tensor({257}, 1, -30, 30), y = silu(x);
  const auto in = x.to_vector(), out = y.to_vector();
  for (size_t i = 0; i < in.size(); ++i) EXPECT_NEAR(out[i], in[i] / (1 + std::exp(-in[i])), 1e-14) << in[i];
  const Tensor narrow = raw::cast(x, DType::kFloat32);
  const auto rounded = narrow.to_vector(), got = silu(narrow).to_vector();
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], rounded[i] / (1 + std::exp(-rounded[i])), 1e-6 * (1e-3 + std::abs(rounded[i])));
}

TEST(SiluMul, IsSiluTimesTheOther) {
  const Tensor a = random_tensor({31}, 1, -30, 30), b = random_tensor({31}, 2, -2, 2);
  EXPECT_EQ(silu_mul(a, b).to_vector(), mul(silu(a), b).to_vector());
}

TEST(RmsNorm, DividesByTheRootMeanSquare) {
  const Tensor x = random_tensor({5, 19}, 1, -2, 2), w = random_tensor({19}, 2, 0.5, 2);
  const auto in = x.to_vector(), weight = w.to_vector(), y = rms_norm(x, w, 0.01).to_vector();
  for (size_t row = 0; row < 5; ++row) {
    double squares = 0;
    for (size_t i = 0; i < 19; ++i) squares += in[row * 19 + i] * in[row * 19 + i];
    for (size_t i = 0; i < 19; ++i)
      EXPECT_NEAR(y[row * 19 + i], in[row * 19 + i] / std::sqrt(squares / 19 + 0.01) * weight[i], 1e-14);
  }
}

// The formula, and that of its inverse; positions begin at 0 in each sequence.
TEST(Rotary, TurnsPairsHalfAHeadApart) {
  const std::vector<double> frequencies{1, 0.1, 0.002};
  const int64_t batch = 2, time = 400, heads = 2;
  const Tensor x = random_tensor({batch, time, heads, 6}, 1, -1, 1);
  const auto in = x.to_vector(), y = rotary(x, frequencies).to_vector();
  for (size_t row = 0; row < in.size() / 6; ++row)
    for (size_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(row / heads % time) * frequencies[i];
      const double a = in[row * 6 + i], b = in[row * 6 + 3 + i];
      ASSERT_NEAR(y[row * 6 + i], a * std::cos(angle) - b * std::sin(angle), 1e-14);
      ASSERT_NEAR(y[row * 6 + 3 + i], b * std::cos(angle) + a * std::sin(angle), 1e-14);
    }
  EXPECT_EQ(rotary(x.slice(1, 0, 1), frequencies).to_vector(), x.slice(1, 0, 1).to_vector()) << "position 0";
  EXPECT_EQ(rotary(x.slice(0, 1, 2), frequencies).to_vector(),
            std::vector<double>(y.begin() + static_cast<int64_t>(y.size()) / 2, y.end()));
}

TEST(Rotary, BeginsWhereItIsTold) {
  const std::vector<double> frequencies{1, 0.3};
  const Tensor x = testing::random_tensor({2, 9, 3, 4}, 5, -1, 1, DType::kFloat32);
  const Tensor all = rotary(x, frequencies);
  const Tensor parts = concat({slice(slice(x, 0, 0, 1), 1, 4, 6), slice(slice(x, 0, 1, 2), 1, 7, 9)}, 0);
  const Tensor turned = rotary(parts, frequencies, Tensor::of(std::vector<int32_t>{4, 7}, {2}));
  EXPECT_EQ(slice(turned, 0, 0, 1).to_vector(), slice(slice(all, 0, 0, 1), 1, 4, 6).to_vector());
  EXPECT_EQ(slice(turned, 0, 1, 2).to_vector(), slice(slice(all, 0, 1, 2), 1, 7, 9).to_vector());
}

TEST(Rotary, RefusesHeadsThatDoNotFit) {
  for (const Shape& shape : {Shape{2, 3, 2, 5}, Shape{2, 3, 4}, Shape{2, 3, 2, 2}}) try {
      rotary(Tensor::zeros(shape), {1, 0.5});
      ADD_FAILURE() << to_text(Tensor::zeros(shape));
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("2 frequencies"), std::string::npos) << e.what();
    }
  EXPECT_THROW(rotary(Tensor::zeros({1, 1, 1, 258}), std::vector<double>(129)), Error);
}

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

// ----- Cross-entropy whose gradient is computed along with it -----

constexpr double kBeginning = 0.3;
const Tensor& some_targets() {
  static const Tensor t = Tensor::of(std::vector<int32_t>{3, 40, kIgnoreIndex, 0}, {4});
  return t;
}
using Loss = std::function<Tensor(const Tensor& x)>;

struct Outcome {
  std::vector<double> loss, gradient;  // x's
};
// Backward begins with kBeginning; the context says `predicted`.
Outcome outcome(const Loss& f, double predicted, DType dtype = DType::kFloat32) {
  Tensor x = random_tensor({4, 41}, 1, -3, 3, dtype);
  require_grad(x);
  Tensor loss;
  {
    WithLossGradient with(predicted);
    loss = f(x);
  }
  backward(loss, kBeginning);
  return {loss.to_vector(), grad_of(x).to_vector()};
}
void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.gradient, b.gradient);
}
// Whether logits that are handed to f hold their gradient after the forward pass.
bool takes_logits(const std::function<Tensor(Tensor)>& f) {
  Tensor x = random_tensor({4, 41}, 1, -3, 3, DType::kFloat32);
  require_grad(x);
  Tensor logits = affine(x, 1.5);
  const std::vector<float> before = logits.to_vector<float>();
  const float* bytes = logits.values<float>();  // the graph keeps them
  const Tensor loss = f(std::move(logits));
  const std::vector<float> after(bytes, bytes + before.size());
  if (after == before) return false;
  backward(loss, kBeginning);
  const auto gradient = grad_of(x).to_vector<float>();
  for (size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(gradient[i], 1.5f * after[i]);
  for (size_t i = 82; i < 123; ++i) EXPECT_EQ(gradient[i], 0) << "of an ignored row";
  return true;
}

TEST(LossGradient, TakesTheLogitsPlaceWithTheSameBits) {
  WithLossGradient predicted(kBeginning);
  EXPECT_TRUE(takes_logits([](Tensor logits) { return cross_entropy(std::move(logits), some_targets()); }));
  const Loss f = [](const Tensor& x) { return cross_entropy(affine(x, 1.5), some_targets()); };
  const Loss of_a_view = [](const Tensor& x) { return cross_entropy(slice(affine(x, 1.5), 1, 0, 41), some_targets()); };
  const Loss of_a_copy = [](const Tensor& x) {
    return cross_entropy(transpose(reshape(x, {41, 4}), 0, 1), some_targets());
  };
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64})
    for (const Loss& loss : {f, of_a_view, of_a_copy}) {
      SCOPED_TRACE(to_text(dtype));
      expect_same(outcome(loss, kBeginning, dtype), outcome(loss, 0, dtype));
    }
}

TEST(LinearCrossEntropy, HasTheBitsOfItsTwoOperationsAndHoldsFewLogits) {
  constexpr int64_t kRows = 200, kWidth = 24, kClasses = 50;
  std::vector<int32_t> labels(kRows);
  for (size_t i = 0; i < labels.size(); ++i)
    labels[i] = i % 7 == 3 ? static_cast<int32_t>(kIgnoreIndex) : static_cast<int32_t>(i * 13 % kClasses);
  const Tensor target = Tensor::of(labels, {2, kRows / 2});
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64})
    for (const auto& [smoothing, cap] : {std::pair(0.0, 0.0), {0.2, 0.0}, {0.0, 1.5}})
      for (int64_t held : {0, 64, 100, 1000}) {  // 0: both operations
        SCOPED_TRACE(str(to_text(dtype), ", ", held, " rows, cap ", cap));
        const auto run = [&, smoothing = smoothing, cap = cap](int64_t at_once) {
          Tensor x = random_tensor({2, kRows / 2, kWidth}, 1, -1, 1, dtype),
                 w = random_tensor({kClasses, kWidth}, 2, -1, 1, dtype);
          require_grad(x), require_grad(w);
          const auto logits = [&] { return cap > 0 ? soft_cap(linear(x, w), cap) : linear(x, w); };
          const Tensor loss = at_once == 0 ? cross_entropy(logits(), target, kIgnoreIndex, smoothing)
                                           : linear_cross_entropy(x, w, target, at_once, kIgnoreIndex, smoothing, cap);
          backward(loss, kBeginning);
          return std::tuple(loss.item(), grad_of(x).to_vector(), grad_of(w).to_vector());
        };
        const auto expected = run(0), got = run(std::max<int64_t>(held, 1));
        EXPECT_EQ(std::get<0>(got), std::get<0>(expected));
        EXPECT_EQ(std::get<1>(got), std::get<1>(expected));
        EXPECT_EQ(std::get<2>(got), std::get<2>(expected));
      }
  const auto most = [&](bool by_parts) {
    Tensor x = random_tensor({4096, 8}, 1, -1, 1, DType::kFloat32),
           w = random_tensor({1000, 8}, 2, -1, 1, DType::kFloat32);
    require_grad(x), require_grad(w);
    const Tensor targets = Tensor::full({4096}, 1, DType::kInt32);
    reset_peak_bytes();
    const int64_t before = allocator_stats(Device{}).bytes_in_use;
    backward(by_parts ? linear_cross_entropy(x, w, targets, 128) : cross_entropy(linear(x, w), targets));
    return allocator_stats(Device{}).peak_bytes - before;
  };
  EXPECT_GT(most(false), 4096 * 1000 * 4);
  EXPECT_LT(most(true), 4096 * 1000 * 4 / 4);
}

TEST(LossGradient, LeavesLogitsThatOthersHold) {
  WithLossGradient predicted(kBeginning);
  Tensor x = random_tensor({4, 41}, 1, -3, 3, DType::kFloat32);
  require_grad(x);
  const Tensor logits = affine(x, 1.5), view = slice(logits, 0, 0, 1);
  const auto before = logits.to_vector();
  Tensor loss = cross_entropy(logits, some_targets());
  EXPECT_EQ(logits.to_vector(), before) << "the caller keeps them";
  Tensor copy = logits;
  loss = cross_entropy(std::move(copy), some_targets());
  EXPECT_EQ(logits.to_vector(), before);
  backward(loss, kBeginning);
  EXPECT_EQ(logits.to_vector(), before) << "in the backward pass too";
  for (const Loss& f :
       {Loss([](const Tensor& t) { return cross_entropy(tanh(t), some_targets()); }), Loss([](const Tensor& t) {
          const Tensor h = affine(t, 2);
          return add(cross_entropy(h, some_targets()), sum(mul(h, h)));
        })})
    expect_same(outcome(f, kBeginning), outcome(f, 0));  // saved by an operation before, and by one after
}

TEST(LossGradient, LeavesLogitsWhereNothingIsToCome) {
  const auto f = [](Tensor logits) { return cross_entropy(std::move(logits), some_targets()); };
  EXPECT_FALSE(takes_logits([&](Tensor logits) {
    const auto before = logits.to_vector();
    const Tensor loss = f(logits.detach()), again = f(logits);
    EXPECT_EQ(logits.to_vector(), before);
    EXPECT_EQ(loss.to_vector(), again.to_vector());
    return again;
  }));
  WithLossGradient predicted(kBeginning);
  NoGrad no_grad;
  std::vector<float> values = random_tensor({4, 41}, 1, -3, 3, DType::kFloat32).to_vector<float>();
  const std::vector<float> before = values;
  auto outlived = std::make_shared<Storage>(Device{}, 4 * 41 * 4, values.data(), nullptr);
  f(Tensor::view_of(std::move(outlived), 0, {4, 41}, DType::kFloat32));
  EXPECT_EQ(values, before);
}

TEST(LossGradient, OfAnotherValueIsRescaled) {
  const Loss f = [](const Tensor& x) { return cross_entropy(affine(x, 1.5), some_targets()); };
  const Loss weighted = [&](const Tensor& x) { return add(f(x), affine(f(x), 0.7)); };
  for (const Loss& loss : {f, weighted})
    for (double predicted : {1.0, 17.0, -0.01}) {
      const Outcome got = outcome(loss, predicted), expected = outcome(loss, 0);
      EXPECT_EQ(got.loss, expected.loss);
      for (size_t i = 0; i < got.gradient.size(); ++i)
        ASSERT_NEAR(got.gradient[i], expected.gradient[i], 1e-6 * std::abs(expected.gradient[i])) << i;
    }
  for (double power : {0.25, 1024.0}) expect_same(outcome(f, power * kBeginning), outcome(f, 0));
}

TEST(LossGradient, IsComputedAgainWithWhatIsRecomputed) {
  const Loss f = [](const Tensor& x) {
    return recomputed(x, {}, [](const Tensor& t) { return cross_entropy(affine(t, 1.5), some_targets()); });
  };
  expect_same(outcome(f, kBeginning), outcome(f, 0));
  WithLossGradient also_in_backward(kBeginning);
  expect_same(outcome(f, kBeginning), outcome(f, 0));
}

TEST(LossGradient, IsLookedAtInAnomalyModeAndGuardedAgainstWrites) {
  Tensor x = random_tensor({4, 41}, 1, -3, 3, DType::kFloat32);
  require_grad(x);
  const auto error_of = [&](double beginning, bool write) -> std::string {
    WithAnomaly anomaly;
    WithLossGradient predicted(beginning);
    Tensor logits = affine(x, 1.5);
    const std::weak_ptr<Storage> bytes = logits.storage();
    const Tensor loss = cross_entropy(std::move(logits), some_targets());
    if (write) raw::fill(Tensor::view_of(bytes.lock(), 0, {4, 41}, DType::kFloat32), 1);
    try {
      backward(loss, beginning);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(kBeginning, false), "");
  EXPECT_NE(error_of(INFINITY, false).find("a gradient from the backward pass of cross_entropy"), std::string::npos);
  EXPECT_NE(error_of(kBeginning, true).find("saved by cross_entropy"), std::string::npos);
}

// ----- A sum and its norm in one pass -----

TEST(AddLayerNorm, HasTheBitsOfAnAdditionAndANorm) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64})
    for (bool bias : {false, true})
      for (bool dense : {false, true}) {
        SCOPED_TRACE(str(dtype, bias ? ", bias" : "", dense ? "" : ", of views"));
        const auto run = [&](bool one) {
          const Shape shape = dense ? Shape{2, 3, 19} : Shape{2, 19, 3};
          std::vector<Tensor> x{random_tensor(shape, 1, -2, 2, dtype), random_tensor(shape, 2, -1, 1, dtype),
                                random_tensor({19}, 3, 0.5, 2, dtype), random_tensor({19}, 4, -1, 1, dtype)};
          for (Tensor& t : x) require_grad(t);
          const Tensor a = dense ? x[0] : transpose(x[0], 1, 2), b = dense ? x[1] : transpose(x[1], 1, 2),
                       shift = bias ? x[3] : Tensor();
          AddLayerNorm out;
          if (one) {
            out = add_layer_norm(a, b, x[2], shift);
          } else {
            out.sum = add(a, b);
            out.y = layer_norm(out.sum, x[2], shift);
          }
          backward(sum(mul(add(out.sum, gelu(out.y)), random_tensor({2, 3, 19}, 5, -1, 1, dtype))));
          std::vector<std::vector<double>> values{out.sum.to_vector(), out.y.to_vector()};
          for (const Tensor& t : x)
            if (grad_of(t)) values.push_back(grad_of(t).to_vector());
          return values;
        };
        EXPECT_EQ(run(true), run(false));
      }
}

TEST(AddLayerNorm, RefusesOperandsThatDoNotFit) {
  const Tensor a = Tensor::zeros({2, 3}), w = Tensor::zeros({3});
  for (const auto& [b, weight] :
       {std::pair{Tensor::zeros({3}), w}, std::pair{Tensor::zeros({2, 3}, DType::kBFloat16), w},
        std::pair{a, Tensor::zeros({2})}})
    try {
      add_layer_norm(a, b, weight, {});
      ADD_FAILURE() << to_text(b) << ", " << to_text(weight);
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find("add_layer_norm: fp32[2, 3] on cpu "), 0u) << e.what();
    }
}

// The bits of three ops: whatever the types, with one column, without biases, of parameters that others share and
// that were swept before, and where some take no gradient.
TEST(FeedForward, IsThreeOpsToTheBit) {
  auto three_ops = [](const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                      const Tensor& down_bias,
                      CallSite) { return linear(gelu(linear(x, up, up_bias)), down, down_bias); };
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
        return op(in, p[0], bias ? p[1] : Tensor(), p[2], bias ? p[3] : Tensor(), CallSite::current());
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
                                       str(x_dtype, " by ", dtype, ", ", hidden, bias ? ", bias" : "", ", ", frozen));
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
      EXPECT_NE(std::string(e.what()).find("feed_forward called at tests/core/ops/ops_test.cpp:"), std::string::npos)
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
}  // namespace lockstep::ops_test
