// bf16 and fp16: types of results and gradients, sums that round once, operands of different types, and the built-in
// models, trained on low-precision copies of fp32 masters.
#include <gtest/gtest.h>

#include <cmath>

#include "core/metrics/metric.h"
#include "core/models/convnet.h"
#include "core/models/gpt.h"
#include "core/models/llama.h"
#include "core/models/mlp.h"
#include "core/nn/recompute.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/each_device.h"
#include "tests/support/gradcheck.h"

namespace lockstep::low_precision_test {
namespace {

using testing::random_tensor;
using Inputs = std::vector<Tensor>;

constexpr DType kLow[] = {DType::kBFloat16, DType::kFloat16};

TEST(Types, OfResultsAreTheFirstInputsAndOfLeafGradientsFp32) {
  struct Case {
    const char* name;
    std::function<Tensor(const Inputs&)> f;
    std::vector<Shape> shapes;
  };
  const Case cases[] = {
      {"add", [](const Inputs& x) { return add(x[0], x[1]); }, {{4, 6}, {6}}},
      {"mul", [](const Inputs& x) { return mul(x[0], x[1]); }, {{4, 6}, {4, 1}}},
      {"matmul", [](const Inputs& x) { return matmul(x[0], x[1]); }, {{4, 6}, {6, 5}}},
      {"linear", [](const Inputs& x) { return linear(x[0], x[1], x[2]); }, {{4, 6}, {5, 6}, {5}}},
      {"feed_forward",
       [](const Inputs& x) { return feed_forward(x[0], x[1], x[2], affine(x[1], 0.25), x[2]); },
       {{4, 6}, {6, 6}, {6}}},
      {"layer_norm", [](const Inputs& x) { return layer_norm(x[0], x[1], x[2]); }, {{4, 6}, {6}, {6}}},
      {"layer_norm of a scaled weight",
       [](const Inputs& x) { return layer_norm(x[0], affine(x[1], 2), x[2]); },
       {{4, 6}, {6}, {6}}},
      {"conv2d", [](const Inputs& x) { return conv2d(x[0], x[1], x[2]); }, {{2, 5, 5, 3}, {4, 3, 3, 3}, {4}}},
  };
  for (const Case& c : cases)
    for (DType low : kLow)
      for (unsigned wide = 0; wide < 8; ++wide) {  // which operands are fp32
        if (wide >> c.shapes.size()) continue;
        Inputs inputs, exact;
        for (size_t i = 0; i < c.shapes.size(); ++i) {
          inputs.push_back(random_tensor(c.shapes[i], i + 1, 0.25, 1, wide >> i & 1 ? DType::kFloat32 : low));
          exact.push_back(raw::cast(inputs.back(), DType::kFloat64));
          require_grad(inputs.back());
          require_grad(exact.back());
        }
        SCOPED_TRACE(str(c.name, " in ", low, ", wide operands ", wide));
        const Tensor y = c.f(inputs), z = c.f(exact);
        ASSERT_EQ(y.dtype(), inputs[0].dtype());
        const Tensor w = random_tensor(y.shape(), 9, 0.5, 1);
        backward(sum(mul(cast(y, DType::kFloat32), raw::cast(w, DType::kFloat32))));
        backward(sum(mul(z, w)));
        const double eps = low == DType::kBFloat16 ? 0.03 : 0.004;
        for (size_t i = 0; i < inputs.size(); ++i) {
          ASSERT_EQ(grad_of(inputs[i]).dtype(), DType::kFloat32) << i;
          const auto got = grad_of(inputs[i]).to_vector(), wanted = grad_of(exact[i]).to_vector();
          for (size_t e = 0; e < got.size(); ++e)
            ASSERT_NEAR(got[e], wanted[e], eps * (1 + std::abs(wanted[e]))) << "input " << i << ", element " << e;
        }
      }
}

// What broadcasting repeated, and what several dimensions hold, is summed in fp32 and rounded at the end, or not at
// all.
TEST(Sums, RoundOnce) {
  const int64_t rows = 1000;
  for (DType low : kLow) {
    Tensor bias = Tensor::full({8}, 0.5, low);
    require_grad(bias);
    backward(sum(cast(add(Tensor::full({rows, 8}, 1, low), bias), DType::kFloat32)));
    EXPECT_EQ(grad_of(bias).to_vector(), std::vector<double>(8, rows)) << "1000 is no multiple of bf16's step there, 4";
    Tensor x = Tensor::full({rows, 3, 7}, 1.25, low);
    EXPECT_EQ(mean(x, {0, 2}).to_vector(), std::vector<double>(3, 1.25)) << "7 x 1000 x 1.25 fits no fp16 exactly";
    EXPECT_EQ(sum(raw::cast(Tensor::full({rows, 3, 7}, 0.001), low), {0, 2}).dtype(), low);
    EXPECT_EQ(mean(Tensor::full({70000, 2}, 8, low), {0}).to_vector(), std::vector<double>(2, 8.0))
        << "a sum beyond fp16's range";
  }
}

TEST(Cast, PassesGradientsBackInTheInputsType) {
  for (DType low : kLow) {
    Tensor x = random_tensor({5}, 1, -1, 1, low), w = random_tensor({5}, 2, -1, 1, DType::kFloat32);
    require_grad(x);
    backward(sum(mul(cast(x, DType::kFloat32), w)));
    EXPECT_EQ(grad_of(x).to_vector(), w.to_vector()) << "a leaf's gradient is not rounded";
    const Tensor images = cast(Tensor::of(std::vector<uint8_t>{0, 3, 255}, {3}), low);
    EXPECT_EQ(images.dtype(), low);
    EXPECT_EQ(images.to_vector(), (std::vector<double>{0, 3, 255}));
  }
}

// --- Models on copies of fp32 masters, as sharding keeps them: here with a plain loop and momentum.

struct Task {
  const char* name;
  std::function<std::unique_ptr<Model>()> make;
  std::function<std::pair<Tensor, Tensor>(int64_t step)> batch;
  double lr;
};
std::ostream& operator<<(std::ostream& out, const Task& t) { return out << t.name; }

std::pair<Tensor, Tensor> images(int64_t step) {  // the label is the brightest row's
  std::vector<float> v =
      random_tensor({12, 8, 8, 1}, static_cast<uint64_t>(step % 4), 0, 1, DType::kFloat32).to_vector<float>();
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < 12; ++i) {
    labels.push_back(static_cast<int32_t>((i * 5 + step) % 4));
    for (int64_t c = 0; c < 16; ++c) v[static_cast<size_t>(i * 64 + labels.back() * 16 + c)] += 1;
  }
  return {Tensor::of(v, {12, 8, 8, 1}), Tensor::of(labels, {12})};
}

std::pair<Tensor, Tensor> texts(int64_t step) {  // each token tells the next
  std::vector<int32_t> in, out;
  for (int64_t b = 0; b < 4; ++b)
    for (int64_t t = 0; t < 10; ++t) {
      const int64_t at = step * 3 + b * 7 + t;
      in.push_back(static_cast<int32_t>(at % 11));
      out.push_back(static_cast<int32_t>((at + 1) % 11));
    }
  return {Tensor::of(in, {4, 10}), Tensor::of(out, {4, 10})};
}

std::vector<Task> tasks() {
  return {
      {"mlp",
       [] {
         return std::make_unique<Mlp>(MlpOptions{.hidden = {24, 16}}, TaskSpec{{8, 8, 1}, 4});
       },
       images, 0.02},
      {"convnet",
       [] {
         return std::make_unique<Convnet>(ConvnetOptions{.channels = {6, 8}, .hidden = 16, .dropout = 0.1},
                                          TaskSpec{{8, 8, 1}, 4});
       },
       images, 0.05},
      {"gpt",
       [] {
         return std::make_unique<Gpt>(GptOptions{.layers = 3, .heads = 2, .width = 32, .dropout = 0.1},
                                      TaskSpec{{10}, 11});
       },
       texts, 0.1},
      {"llama",
       [] {
         return std::make_unique<Llama>(
             LlamaOptions{
                 .layers = 3, .heads = 4, .width = 32, .kv_heads = 2, .window = 6, .qkv_bias = true, .qk_norm = true},
             TaskSpec{{10}, 11});
       },
       texts, 0.1}};
}

// The loss of each step, and the masters at the end.
struct Trained {
  std::vector<double> losses;
  testing::Values masters;
};

Trained train(const Task& task, DType dtype, int steps, Recompute recompute = Recompute::kNone) {
  std::unique_ptr<Model> model = task.make();
  place_parameters(*model, 5);
  apply_recompute(*model, recompute);
  std::vector<NamedParameter> parameters = model->parameters();
  std::vector<Tensor> masters, momenta;
  for (auto& p : parameters) {
    masters.push_back(p.parameter->value.detach());
    momenta.push_back(Tensor::zeros(masters.back().shape()));
    Tensor copy = Tensor::empty(masters.back().shape(), dtype);
    p.parameter->value = require_grad(copy);
  }
  Trained out;
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < masters.size(); ++i) raw::copy(parameters[i].parameter->value, masters[i]);
    auto [x, y] = task.batch(step);
    std::vector<int64_t> samples(static_cast<size_t>(x.dim(0)));
    for (size_t i = 0; i < samples.size(); ++i) samples[i] = step * 100 + static_cast<int64_t>(i);
    WithRandom random({1, step, std::make_shared<const std::vector<int64_t>>(samples)});
    const Tensor output = (*model)(is_floating(x.dtype()) ? cast(x, dtype) : x);
    EXPECT_EQ(output.dtype(), dtype);
    const Tensor loss = cross_entropy(output, y);
    EXPECT_EQ(loss.dtype(), DType::kFloat32);
    EXPECT_GE(count_correct(output, y).sum, 0);
    out.losses.push_back(loss.item() / static_cast<double>(y.numel()));
    backward(loss, 1.0 / static_cast<double>(y.numel()));
    for (size_t i = 0; i < masters.size(); ++i) {
      const Tensor& gradient = grad_of(parameters[i].parameter->value);
      EXPECT_EQ(gradient.dtype(), DType::kFloat32) << parameters[i].name;
      raw::pointwise(PointwiseOp::kAddScaled, {momenta[i]}, {gradient, momenta[i]}, 0.9);
      raw::pointwise(PointwiseOp::kAddScaled, {masters[i]}, {masters[i], momenta[i]}, -task.lr);
      clear_grad(parameters[i].parameter->value);
    }
  }
  for (const Tensor& m : masters) out.masters.push_back(m.to_vector());
  return out;
}

class EachModel : public ::testing::TestWithParam<Task> {};
INSTANTIATE_TEST_SUITE_P(Models, EachModel, ::testing::ValuesIn(tasks()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(EachModel, TrainsInLowPrecisionAsInFp32) {
  const std::vector<double> fp32 = train(GetParam(), DType::kFloat32, 30).losses;
  ASSERT_LT(fp32.back(), 0.7 * fp32.front()) << "else this test compares guesses";
  for (DType low : kLow) {
    const std::vector<double> losses = train(GetParam(), low, 30).losses;
    EXPECT_NE(losses, fp32);
    const double tolerance = low == DType::kBFloat16 ? 0.05 : 0.01;
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], fp32[i], tolerance * fp32.front()) << to_text(low) << ", step " << i;
  }
}

TEST_P(EachModel, HasOneResultOnEachDeviceAndWithRecomputation) {
  for (DType low : kLow) {
    const testing::Values plain = train(GetParam(), low, 3).masters;
    for (Recompute mode : {Recompute::kBlock, Recompute::kAttention})
      testing::expect_equal_bits(plain, train(GetParam(), low, 3, mode).masters, "recomputed");
    testing::same_on_each_device([&] { return train(GetParam(), low, 3).masters; });
  }
}

}  // namespace
}  // namespace lockstep::low_precision_test
