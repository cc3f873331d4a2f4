// Ready modules, operators of tensors, and a module's state in a file.
#include <gtest/gtest.h>

#include "core/io/safetensors.h"
#include "core/nn/containers.h"
#include "core/nn/layers.h"
#include "core/nn/multi_head_attention.h"
#include "core/nn/simple_layers.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/files.h"
#include "tests/support/gradcheck.h"

namespace lockstep::modules_test {
namespace {

using test::expect_error;
using testing::random_tensor;
using Numbers = std::vector<double>;

Tensor input(const Shape& shape, uint64_t seed = 1) { return random_tensor(shape, seed, -1, 1, DType::kFloat32); }

TEST(Operators, AreThoseOfNumbers) {
  const Tensor x = Tensor::of(std::vector<float>{3, -4, 6}, {3}), y = Tensor::of(std::vector<float>{2, 8, -3}, {3});
  EXPECT_EQ((x / y).to_vector(), (Numbers{1.5, -0.5, -2}));
  EXPECT_EQ((-x).to_vector(), (Numbers{-3, 4, -6}));
  EXPECT_EQ((x + 1).to_vector(), (Numbers{4, -3, 7}));
  EXPECT_EQ((1 + x).to_vector(), (Numbers{4, -3, 7}));
  EXPECT_EQ((x - 1).to_vector(), (Numbers{2, -5, 5}));
  EXPECT_EQ((1 - x).to_vector(), (Numbers{-2, 5, -5}));
  EXPECT_EQ((2 * x).to_vector(), (Numbers{6, -8, 12}));
  EXPECT_EQ((x * 2).to_vector(), (Numbers{6, -8, 12}));
  EXPECT_EQ((x / 2).to_vector(), (Numbers{1.5, -2, 3}));
  EXPECT_EQ((12 / x).to_vector(), (Numbers{4, -3, 2}));
  // A quotient is rounded once.
  EXPECT_EQ((Tensor::of(std::vector<float>{7}, {1}) / 3).item(), static_cast<double>(7.0f / 3.0f));
}

TEST(Operators, IndicesAndRangesAreViewsWithGradients) {
  Tensor x = input({3, 2});
  require_grad(x);
  const Numbers all = x.to_vector();
  EXPECT_EQ(x[1].shape(), (Shape{2}));
  EXPECT_EQ(x[1].to_vector(), (Numbers{all[2], all[3]}));
  EXPECT_EQ(x[1][1].to_vector(), (Numbers{all[3]}));
  EXPECT_EQ((x[{1, 3}].shape()), (Shape{2, 2}));
  EXPECT_EQ((x[{1, 3}].to_vector()), (Numbers{all[2], all[3], all[4], all[5]}));
  backward(sum(x[2] * 3 + x[{0, 1}]));
  EXPECT_EQ(grad_of(x).to_vector(), (Numbers{1, 1, 0, 0, 3, 3}));
  expect_error(ExitCode::kInternal, {"element 3 of"}, [&] { (void)x[3]; });
}

TEST(Containers, ASequentialRunsItsPartsInOrder) {
  Sequential net(make<Linear>(4, 6), make<Relu>(), make<Linear>(6, 3));
  place_parameters(net, 5);
  std::vector<std::string> names;
  for (auto& p : net.parameters()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"}));
  const auto value = [&](size_t i) { return net.parameters()[i].parameter->value; };
  const Tensor x = input({5, 4});
  EXPECT_EQ(net(x).to_vector(), linear(relu(linear(x, value(0), value(1))), value(2), value(3)).to_vector());
}

TEST(Containers, AListIsOfBlocksOfItsModel) {
  struct Net : ModuleOf<Tensor> {
    Net() : stem_(child<Linear>("stem", 4, 4)), blocks_(child<ModuleList<Sequential>>("blocks")) {
      for (int i = 0; i < 3; ++i) blocks_.add(make<Linear>(4, 4), make<Tanh>());
    }
    Tensor forward(const Tensor& x) override {
      Tensor h = stem_(x);
      for (Sequential* block : blocks_) h = (*block)(h);
      return h;
    }
    Linear& stem_;
    ModuleList<Sequential>& blocks_;
  } net;
  place_parameters(net, 5);
  std::vector<std::string> names;
  for (Module* block : net.blocks()) names.push_back(block->name());
  EXPECT_EQ(names, (std::vector<std::string>{"stem", "blocks.0", "blocks.1", "blocks.2"}));
  EXPECT_EQ(net.parameters()[2].name, "blocks.0.0.weight");
  EXPECT_EQ(net.blocks_.size(), 3);
  EXPECT_EQ(&net.blocks_[1], net.blocks()[2]);
}

TEST(MultiHeadAttention, CrossesToAnotherSequence) {
  MultiHeadAttention attend(6, 2, {.kv_heads = 1, .key_width = 4});
  place_parameters(attend, 5);
  const auto value = [&](const char* name) {
    for (auto& [own, tensor] : attend.state_dict())
      if (own == name) return tensor;
    throw std::runtime_error(name);
  };
  const Tensor x = input({2, 3, 6}), other = input({2, 5, 4}, 2);
  const Tensor lengths = Tensor::of(std::vector<int32_t>{5, 2}, {2});
  const auto heads = [](const Tensor& t) { return reshape(t, {t.dim(0), t.dim(1), t.dim(2) / 3, 3}); };
  const Tensor q = heads(linear(x, value("q.weight"), value("q.bias"))),
               k = heads(linear(other, value("k.weight"), value("k.bias"))),
               v = heads(linear(other, value("v.weight"), value("v.bias")));
  const Tensor expected =
      linear(reshape(attention(q, k, v, {.lengths = lengths}), {2, 3, 6}), value("proj.weight"), value("proj.bias"));
  EXPECT_EQ(attend(x, other, other, {.lengths = lengths}).to_vector(), expected.to_vector());
  expect_error(ExitCode::kConfig, {"attention of 4 heads"}, [] { MultiHeadAttention(6, 4); });
  expect_error(ExitCode::kConfig, {"2 heads of keys"}, [] { MultiHeadAttention(6, 3, {.kv_heads = 2}); });
}

TEST(MultiHeadAttention, HasGradientsOfAllItsInputs) {
  MultiHeadAttention attend(6, 2);
  place_parameters(attend, 5);
  Tensor q = input({2, 3, 6}), k = input({2, 4, 6}, 2), v = input({2, 4, 6}, 3);
  for (Tensor* t : {&q, &k, &v}) require_grad(*t);
  backward(sum(attend(q, k, v) * 2));
  for (const Tensor* t : {&q, &k, &v}) {
    double squares = 0;
    for (double g : grad_of(*t).to_vector()) squares += g * g;
    EXPECT_GT(squares, 0);
  }
  const Tensor own = attend(q, {.causal = true});
  EXPECT_EQ(own.shape(), (Shape{2, 3, 6}));
}

TEST(Layers, AreTheirOperations) {
  GroupNorm norm(2, 4);
  Lstm lstm(3, 5, 2, true);
  Gru gru(3, 5);
  for (Module* m : {static_cast<Module*>(&norm), static_cast<Module*>(&lstm), static_cast<Module*>(&gru)})
    place_parameters(*m, 5);
  const Tensor images = input({2, 4, 4, 4});
  EXPECT_EQ(norm(images).to_vector(), group_norm(images, 2, Tensor::full({4}, 1), Tensor::zeros({4})).to_vector());
  expect_error(ExitCode::kConfig, {"group norm of 3 groups"}, [] { GroupNorm(3, 4); });
  EXPECT_EQ(lstm(input({2, 6, 3})).shape(), (Shape{2, 6, 10}));
  EXPECT_EQ(gru(input({2, 6, 3})).shape(), (Shape{2, 6, 5}));
  EXPECT_EQ(MaxPool2d(2)(images).to_vector(), max_pool2d(images, 2, 2).to_vector());
  EXPECT_EQ(AvgPool2d(2, 1, 1, false)(images).to_vector(), avg_pool2d(images, 2, 1, 1, false).to_vector());
  EXPECT_EQ(AdaptiveAvgPool2d(1, 1)(images).to_vector(), adaptive_avg_pool2d(images, 1, 1).to_vector());
  EXPECT_EQ(Upsample2d(2)(images).shape(), (Shape{2, 8, 8, 4}));
  EXPECT_EQ(LeakyRelu(0.1)(images).to_vector(), leaky_relu(images, 0.1).to_vector());
  EXPECT_EQ(Flatten()(images).shape(), (Shape{2, 64}));
  EXPECT_EQ(Softmax()(images).to_vector(), softmax(images).to_vector());
}

// x, both weights and both biases of a layer of `hidden` cells on [batch, time, 5].
std::vector<Tensor> recurrent_inputs(Cell cell, int64_t hidden, int64_t batch, int64_t time) {
  const int64_t gates = (cell == Cell::kLstm ? 4 : 3) * hidden;
  return {input({batch, time, 5}), input({gates, 5}, 2), input({gates, hidden}, 3), input({gates}, 4),
          input({gates}, 5)};
}
Tensor recurrent_loss(Cell cell, const std::vector<Tensor>& x) {
  const Tensor y = recurrent(cell, x[0], x[1], x[2], x[3], x[4]);
  return sum(y * y);
}

// The result and all gradients. `observer`: of products.
Numbers recurrent_bits(Cell cell, int64_t hidden, int64_t batch, int threads,
                       std::function<void(const Tensor&)> observer = {}) {
  Stream stream(Device{}, Stream::Mode::kInline, threads);
  WithStream with(stream);
  std::vector<Tensor> x = recurrent_inputs(cell, hidden, batch, 4);
  for (Tensor& t : x) require_grad(t);
  raw::set_product_observer(std::move(observer));
  const Tensor y = recurrent(cell, x[0], x[1], x[2], x[3], x[4]);
  backward(sum(y * y));
  raw::set_product_observer({});
  Numbers out = y.to_vector();
  for (const Tensor& t : x)
    for (double g : grad_of(t).to_vector()) out.push_back(g);
  return out;
}

// Whether threads share out the samples or, of a large weight, the products of each step; whether one kernel runs all
// steps or each part is one, as where products are watched.
TEST(Recurrent, HasTheSameBitsHoweverItIsRun) {
  for (Cell cell : {Cell::kLstm, Cell::kGru})
    for (const auto& [hidden, batch] : {std::pair{72, 32}, {70, 9}, {5, 3}, {450, 3}}) {
      const Numbers alone = recurrent_bits(cell, hidden, batch, 1);
      int64_t products = 0;
      EXPECT_EQ(recurrent_bits(cell, hidden, batch, 2), alone) << hidden << " cells, batch " << batch;
      EXPECT_EQ(recurrent_bits(cell, hidden, batch, 3), alone) << hidden << " cells, batch " << batch;
      EXPECT_EQ(recurrent_bits(cell, hidden, batch, 2, [&](const Tensor&) { ++products; }), alone)
          << hidden << " cells, batch " << batch;
      // Of x and three gradients; of the steps of an LSTM three forward and back, of a GRU twice as many.
      EXPECT_EQ(products, cell == Cell::kLstm ? 4 + 2 * 3 : 5 + 2 * 6);
    }
}

TEST(Recurrent, AFaultInAnyWatchedProductReachesTheResults) {
  for (Cell cell : {Cell::kLstm, Cell::kGru}) {
    const Numbers sound = recurrent_bits(cell, 5, 3, 1);
    for (int64_t at = 0; at < (cell == Cell::kLstm ? 10 : 17); ++at) {
      int64_t left = at;
      const Numbers other = recurrent_bits(cell, 5, 3, 1, [&](const Tensor& result) {
        if (left-- == 0) raw::fill(result.slice(0, 0, 1), 0.75);
      });
      EXPECT_NE(other, sound) << "product " << at;
    }
  }
}

TEST(Recurrent, BiasesHaveTheirGradientsWhateverElseIsWanted) {
  for (Cell cell : {Cell::kLstm, Cell::kGru})
    for (int64_t time : {1, 4}) {
      SCOPED_TRACE(str(cell == Cell::kLstm ? "LSTM" : "GRU", " over ", time));
      const auto gradients = [&](const std::vector<size_t>& wanted, int passes, bool tied) {
        std::vector<Tensor> x = recurrent_inputs(cell, 6, 3, time);
        x[4] = input(x[3].shape(), 4);  // the same numbers
        for (size_t i : wanted) require_grad(x[i]);
        if (tied) x[4] = x[3];
        for (int pass = 0; pass < passes; ++pass) backward(recurrent_loss(cell, x));
        std::vector<Numbers> out;
        for (size_t i : wanted) out.push_back(grad_of(x[i]).to_vector());
        return out;
      };
      const std::vector<Numbers> both = gradients({3, 4}, 1, false), twice = gradients({3, 4}, 2, false);
      EXPECT_EQ(gradients({3}, 1, false)[0], both[0]);
      EXPECT_EQ(gradients({4}, 1, false)[0], both[1]);
      const Numbers tied = gradients({3}, 1, true)[0];
      for (size_t i = 0; i < tied.size(); ++i) {
        EXPECT_NEAR(tied[i], both[0][i] + both[1][i], 1e-5);
        EXPECT_NEAR(twice[0][i], 2 * both[0][i], 1e-5);
        EXPECT_NEAR(twice[1][i], 2 * both[1][i], 1e-5);
      }
    }
}

TEST(Recurrent, TakesOneType) {
  for (size_t other : {0u, 1u, 2u}) {
    std::vector<Tensor> x = recurrent_inputs(Cell::kLstm, 5, 3, 4);
    x[other] = raw::cast(x[other], DType::kBFloat16);
    try {
      recurrent_loss(Cell::kLstm, x);
      ADD_FAILURE() << "input " << other;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("lstm: "), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("of another type"), std::string::npos) << e.what();
    }
  }
}

TEST(ModuleState, GoesThroughAFile) {
  const test::TemporaryFolder dir;
  const std::string path = dir / "net.safetensors";
  const auto made = [] {
    return std::make_unique<Sequential>(make<Conv2d>(1, 2, 3), make<BatchNorm>(2), make<Flatten>(), make<Linear>(8, 3));
  };
  const auto net = made(), other = made();
  place_parameters(*net, 5);
  net->buffers()[0].buffer->value.mutable_values<float>()[1] = 0.25;
  net->save(path);
  other->load(path);  // without memory before
  net->eval(), other->eval();
  const Tensor x = input({2, 4, 4, 1});
  EXPECT_EQ((*other)(x).to_vector(), (*net)(x).to_vector());
  EXPECT_EQ(other->state_dict().size(), 8u);
  EXPECT_EQ(other->state_dict()[6].name, "1.running_mean");

  Sequential wider(make<Conv2d>(1, 2, 3), make<BatchNorm>(2), make<Flatten>(), make<Linear>(9, 3));
  expect_error(ExitCode::kBadData, {"3.weight is [3, 8] there, and [3, 9] in the module"}, [&] { wider.load(path); });
  Sequential longer(make<Conv2d>(1, 2, 3), make<BatchNorm>(2), make<Flatten>(), make<Linear>(8, 3), make<Linear>(3, 1));
  expect_error(ExitCode::kBadData, {"has no tensor 4.weight"}, [&] { longer.load(path); });
  Sequential shorter(make<Conv2d>(1, 2, 3), make<BatchNorm>(2));
  expect_error(ExitCode::kBadData, {"has a tensor 3."}, [&] { shorter.load(path); });
  expect_error(ExitCode::kMissingInput, {"nowhere"}, [&] { shorter.load(dir / "nowhere"); });
  expect_error(ExitCode::kInternal, {"has no values"}, [&] { longer.save(dir / "x.safetensors"); });
}

}  // namespace
}  // namespace lockstep::modules_test
