// Operations, models, optimizers and schedules against values computed once by PyTorch (make_golden.py), in fp32.
// Tolerances are of fp32 rounding: 2e-6 for single operations, more where an operation sums many terms, as said at each
// case.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/io/hdf5/hdf5_file.h"
#include "core/models/bert.h"
#include "core/models/convnet.h"
#include "core/models/gan.h"
#include "core/models/gpt.h"
#include "core/models/llama.h"
#include "core/models/lstm.h"
#include "core/models/mlp.h"
#include "core/models/resnet.h"
#include "core/models/unet.h"
#include "core/models/vit.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "optim/builtin.h"
#include "optim/schedule.h"

namespace lockstep::golden_test {
namespace {

const Hdf5File& golden() {
  static const Hdf5File file = Hdf5File::open(LOCKSTEP_GOLDEN);
  return file;
}

// fp32, fp64 or int32; int64 as int32.
Tensor stored(const std::string& name) {
  const Hdf5Info info = golden().info(name);
  const IndexRange all{0, info.shape[0]};
  if (info.type == StoredType::kFloat32) {
    std::vector<float> v(static_cast<size_t>(info.shape.numel()));
    golden().read(name, info.type, all, v.data());
    return Tensor::of(v, info.shape);
  }
  if (info.type == StoredType::kFloat64) {
    std::vector<double> v(static_cast<size_t>(info.shape.numel()));
    golden().read(name, info.type, all, v.data());
    return Tensor::of(v, info.shape);
  }
  std::vector<int32_t> v(static_cast<size_t>(info.shape.numel()));
  golden().read(name, StoredType::kInt32, all, v.data());
  return Tensor::of(v, info.shape);
}

void expect_near(const Tensor& got, const Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  const auto a = got.to_vector(), b = expected.to_vector();
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << what << ", element " << i;
}

using Inputs = std::vector<Tensor>;
struct OpGolden {
  const char* name;
  std::function<Tensor(const Inputs&)> f;
  double tolerance = 2e-6;
};
std::ostream& operator<<(std::ostream& out, const OpGolden& c) { return out << c.name; }

std::vector<OpGolden> op_list() {
  return {{"add", [](const Inputs& x) { return add(x[0], x[1]); }},
          {"sub", [](const Inputs& x) { return sub(x[0], x[1]); }},
          {"mul", [](const Inputs& x) { return mul(x[0], x[1]); }},
          {"div", [](const Inputs& x) { return div(x[0], x[1]); }},
          {"affine", [](const Inputs& x) { return affine(x[0], -2.5, 0.25); }},
          {"exp", [](const Inputs& x) { return exp(x[0]); }},
          {"log", [](const Inputs& x) { return log(x[0]); }},
          {"sqrt", [](const Inputs& x) { return sqrt(x[0]); }},
          {"tanh", [](const Inputs& x) { return tanh(x[0]); }},
          {"relu", [](const Inputs& x) { return relu(x[0]); }},
          {"gelu", [](const Inputs& x) { return gelu(x[0]); }, 4e-6},
          {"permute",
           [](const Inputs& x) {
             return reshape(permute(x[0], {2, 0, 1}), {5, 6});
           }},
          {"slice", [](const Inputs& x) { return slice(x[0], 1, 1, 4); }},
          {"expand",
           [](const Inputs& x) {
             return expand(x[0], {4, 3, 5});
           }},
          {"sum",
           [](const Inputs& x) {
             return sum(x[0], {0, 2});
           }},
          {"mean", [](const Inputs& x) { return mean(x[0], {1}); }},
          {"matmul", [](const Inputs& x) { return matmul(x[0], x[1]); }},
          {"matmul_batched", [](const Inputs& x) { return matmul(x[0], x[1]); }},
          {"linear", [](const Inputs& x) { return linear(x[0], x[1], x[2]); }},
          {"softmax", [](const Inputs& x) { return softmax(x[0]); }},
          {"cross_entropy", [](const Inputs& x) { return cross_entropy(x[0], x[1]); }},
          {"layer_norm", [](const Inputs& x) { return layer_norm(x[0], x[1], x[2]); }, 5e-6},
          {"embedding", [](const Inputs& x) { return embedding(x[0], x[1]); }},
          {"conv2d", [](const Inputs& x) { return conv2d(x[0], x[1], x[2]); }, 5e-6},
          {"conv2d_stride_padding",
           [](const Inputs& x) { return conv2d(x[0], x[1], Tensor(), {.stride = 2, .padding = 1}); }, 5e-6},
          {"max_pool2d", [](const Inputs& x) { return max_pool2d(x[0], 2, 2); }},
          {"max_pool2d_padded", [](const Inputs& x) { return max_pool2d(x[0], 3, 2, 1); }},
          {"batch_norm", [](const Inputs& x) { return batch_norm(x[0], x[1], x[2]).y; }, 5e-6},
          {"batch_norm_add_relu",
           [](const Inputs& x) {
             BatchNormOptions o;
             o.relu = true, o.addend = x[3];
             return batch_norm(x[0], x[1], x[2], o).y;
           },
           5e-6},
          {"lstm", [](const Inputs& x) { return recurrent(Cell::kLstm, x[0], x[1], x[2], x[3], x[4]); }},
          {"lstm_reverse", [](const Inputs& x) { return recurrent(Cell::kLstm, x[0], x[1], x[2], x[3], x[4], true); }},
          {"gru", [](const Inputs& x) { return recurrent(Cell::kGru, x[0], x[1], x[2], x[3], x[4]); }},
          {"gru_reverse", [](const Inputs& x) { return recurrent(Cell::kGru, x[0], x[1], x[2], x[3], x[4], true); }},
          {"concat",
           [](const Inputs& x) {
             return concat({x[0], x[1], x[0]}, 1);
           }},
          {"attention", [](const Inputs& x) { return attention(x[0], x[1], x[2]); }},
          {"attention_with_lengths",
           [](const Inputs& x) {
             return attention(x[0], x[1], x[2], {.lengths = Tensor::of(std::vector<int32_t>{7, 20}, {2})});
           }},
          {"conv_transpose2d", [](const Inputs& x) { return conv_transpose2d(x[0], x[1], x[2], 2); }},
          {"conv_transpose2d_padded", [](const Inputs& x) { return conv_transpose2d(x[0], x[1], Tensor(), 2, 1); }},
          {"max_pool2d_overlapping", [](const Inputs& x) { return max_pool2d(x[0], 3, 1); }},
          {"causal_attention", [](const Inputs& x) { return causal_attention(x[0], 2); }, 5e-6},
          {"causal_attention_tiles", [](const Inputs& x) { return causal_attention(x[0], 1); }, 1e-5},
          {"rms_norm", [](const Inputs& x) { return rms_norm(x[0], x[1]); }, 5e-6},
          {"silu_mul", [](const Inputs& x) { return silu_mul(x[0], x[1]); }, 4e-6},
          {"rotary", [](const Inputs& x) { return rotary(x[0], rope_frequencies({}, 8, 0)); }},
          {"attention_grouped", [](const Inputs& x) { return causal_attention(x[0], x[1], x[2]); }, 1e-5},
          {"attention_window", [](const Inputs& x) { return causal_attention(x[0], x[1], x[2], 9); }, 1e-5},
          {"functions",
           [](const Inputs& in) {
             const Tensor& x = in[0];
             return stack({sigmoid(x), softplus(x), log_sigmoid(x), gelu_erf(x), leaky_relu(x, 0.2), abs(x), pow(x, 3),
                           pow(abs(x), -1.7), clamp(x, -2.5, 1.5)},
                          0);
           }},
          {"selections",
           [](const Inputs& in) {
             const Tensor &x = in[0], &y = in[1], &index = in[2];
             std::vector<Tensor> parts{maximum(x, y),
                                       minimum(x, slice(y, 0, 0, 1)),
                                       where(gt(x, Tensor::zeros({1})), x, y),
                                       max(x, {0}),
                                       min(y, {0, 1}),
                                       topk(x, 3).values,
                                       pad(cumsum(y), {{0, 2}, {1, 0}}, 0.5),
                                       gather(x, index),
                                       scatter_add(x, index, concat({y, slice(y, 1, 0, 1)}, 1)),
                                       log_softmax(y)};
             for (Tensor& part : parts) part = reshape(part, {part.numel()});
             return concat(parts, 0);
           }},
          {"classification",
           [](const Inputs& x) {
             return concat({cross_entropy(x[0], x[1], kIgnoreIndex, 0.1), focal_loss(x[0], x[1], 1.5)}, 0);
           }},
          {"losses",
           [](const Inputs& in) {
             const Tensor &x = in[0], &t = in[1];
             return concat({mse_loss(x, t), huber_loss(x, t, 0.75), bce_with_logits(x, t), kl_div(log_sigmoid(x), t),
                            binary_focal_loss(x, cast(in[2], DType::kFloat32)),
                            dice_loss(reshape(sigmoid(x), {2, 4}), reshape(t, {2, 4}))},
                           0);
           }},
          {"conv2d_depthwise",
           [](const Inputs& x) { return conv2d(x[0], x[1], {}, {.padding = 1, .dilation = 2, .groups = 3}); }},
          {"avg_pool2d_of_pixels_alone", [](const Inputs& x) { return avg_pool2d(x[0], 3, 2, 1, false); }},
          {"adaptive_avg_pool2d", [](const Inputs& x) { return adaptive_avg_pool2d(x[0], 3, 5); }},
          {"upsample2d_bilinear", [](const Inputs& x) { return upsample2d(Upsampling::kBilinear, x[0], 7, 3); }},
          {"group_norm", [](const Inputs& x) { return group_norm(x[0], 2, x[1], x[2]); }, 5e-6},
          {"attention_causal_documents", [](const Inputs& x) {
             const Tensor documents = Tensor::of(std::vector<int32_t>{0, 0, 1, 1, 1, 3, 3, 0, 3}, {1, 9});
             return attention(x[0], x[1], x[2], {.causal = true, .documents = documents});
           }}};
}

class GoldenOp : public ::testing::TestWithParam<OpGolden> {};

TEST_P(GoldenOp, ResultAndGradients) {
  const std::string at = str("ops/", GetParam().name, "/");
  Inputs inputs;
  while (golden().has(str(at, "in", inputs.size()))) {
    inputs.push_back(stored(str(at, "in", inputs.size())));
    if (inputs.back().dtype() == DType::kFloat32) require_grad(inputs.back());
  }
  ASSERT_FALSE(inputs.empty());
  Tensor y = GetParam().f(inputs);
  expect_near(y, stored(at + "out"), GetParam().tolerance, "result");
  backward(sum(mul(y, stored(at + "weight"))));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].dtype() == DType::kFloat32)
      expect_near(grad_of(inputs[i]), stored(str(at, "grad", i)), 2 * GetParam().tolerance,
                  str("gradient of input ", i));
}

INSTANTIATE_TEST_SUITE_P(Ops, GoldenOp, ::testing::ValuesIn(op_list()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Golden, EveryStoredOperationIsCompared) {
  std::map<std::string, bool> listed;
  for (const OpGolden& o : op_list()) listed[o.name] = true;
  for (const std::string& name : golden().list())
    if (name.rfind("ops/", 0) == 0) {
      EXPECT_TRUE(listed[name.substr(4, name.find('/', 4) - 4)]) << name;
    }
}

// Weights by name; logits, loss and every gradient, in `dtype`.
void expect_model(Model& model, const std::string& name, double tolerance, DType dtype = DType::kFloat32) {
  const std::string at = "models/" + name + "/";
  place_parameters(model, 1);
  size_t count = 0;
  for (auto& p : model.parameters()) {
    const Tensor value = stored(at + "parameters/" + p.name);
    ASSERT_EQ(value.shape(), p.parameter->value.shape()) << p.name;
    memcpy(p.parameter->value.mutable_values<float>(), value.read(), static_cast<size_t>(value.bytes()));
    if (dtype != DType::kFloat32) {
      p.parameter->value = raw::cast(value, dtype);
      require_grad(p.parameter->value);
    }
    ++count;
  }
  size_t there = 0;
  for (const std::string& dataset : golden().list()) there += dataset.rfind(at + "parameters/", 0) == 0;
  EXPECT_EQ(count, there) << "the same parameters on both sides";
  const Tensor x = stored(at + "x");
  Tensor logits = model(is_floating(x.dtype()) ? raw::cast(x, dtype) : x);
  expect_near(logits, stored(at + "logits"), tolerance, "logits");
  Tensor loss = cross_entropy(logits, stored(at + "y"));
  expect_near(loss, stored(at + "loss"), tolerance, "loss");
  backward(loss);
  for (auto& p : model.parameters())
    if (golden().has(at + "gradients/" + p.name))
      expect_near(grad_of(p.parameter->value), stored(at + "gradients/" + p.name), 3 * tolerance,
                  "gradient of " + p.name);
  for (auto& [buffer_name, b] : model.buffers()) {  // after one fold
    if (!golden().has(at + "buffers/" + buffer_name)) continue;
    const Tensor folded = Tensor::empty(b->value.shape());
    raw::pointwise(PointwiseOp::kAffine, {folded}, {b->value}, 1 - b->rate);
    raw::pointwise(PointwiseOp::kAddScaled, {folded}, {folded, b->update}, b->rate);
    expect_near(folded, stored(at + "buffers/" + buffer_name), tolerance, buffer_name);
  }
}

TEST(GoldenModel, Mlp) {
  Mlp model({.hidden = {9, 7}}, {{2, 3}, 4});
  expect_model(model, "mlp", 3e-6);
}

TEST(GoldenModel, Convnet) {
  Convnet model({.channels = {4, 5}, .kernel = 3, .hidden = 10}, {{10, 9, 2}, 3});
  expect_model(model, "convnet", 1e-5);
}

TEST(GoldenModel, Recurrent) {
  LstmLm lstm({.layers = 2, .width = 8, .embedding = 6}, {{9}, 11});
  expect_model(lstm, "lstm", 1e-5);
  GruLm gru({.layers = 2, .width = 8, .embedding = 6}, {{9}, 11});
  expect_model(gru, "gru", 1e-5);
}

TEST(GoldenModel, Vit) {
  Vit model({.patch = 3, .layers = 2, .heads = 2, .width = 8}, {{6, 9, 2}, 5});
  expect_model(model, "vit", 2e-5);
}

TEST(GoldenModel, Bert) {
  Bert model({.layers = 2, .heads = 2, .width = 8, .dropout = 0}, {{9}, 11});
  expect_model(model, "bert", 3e-5);
}

TEST(GoldenModel, Unet) {
  Unet model({.levels = 2, .width = 3}, {{8, 12, 2}, 3});
  expect_model(model, "unet", 5e-5);
}

// Both networks as one.
class JoinedGan : public Gan {
 public:
  using Gan::Gan;
  Tensor forward(const Tensor& noise) override { return discriminator()(generator()(noise)); }
};

TEST(GoldenModel, Gan) {
  JoinedGan model({.latent = 5, .width = 2, .low = -1, .high = 2}, {{8, 12, 3}, 2});
  expect_model(model, "gan", 5e-5);
}

TEST(GoldenModel, Resnet) {
  Resnet small({.depth = 18, .stem = ResnetOptions::Stem::kSmall, .width = 2}, {{12, 10, 3}, 3});
  expect_model(small, "resnet18", 3e-5);
  Resnet large({.depth = 50, .stem = ResnetOptions::Stem::kLarge, .width = 1}, {{37, 41, 2}, 3});
  expect_model(large, "resnet50", 1e-6, DType::kFloat64);  // fp32 loses much in 53 layers of one to eight channels
}

TEST(GoldenModel, Gpt) {
  Gpt model({.layers = 2, .heads = 2, .width = 12}, {{8}, 13});
  expect_model(model, "gpt", 2e-5);
}

TEST(GoldenModel, Llama) {
  Llama model({.layers = 1,
               .heads = 2,
               .width = 12,
               .kv_heads = 1,
               .hidden = 32,
               .rope = {.scaling = RopeScaling::kLinear, .factor = 4}},
              {{9}, 13});
  expect_model(model, "llama", 2e-5);
}

// All that Mistral, Qwen2, Qwen3 and Llama 3.1 change, at once.
TEST(GoldenModel, LlamaOfRelatives) {
  Llama model({.layers = 2,
               .heads = 4,
               .width = 12,
               .kv_heads = 2,
               .head_width = 4,
               .hidden = 20,
               .window = 4,
               .tied = true,
               .qkv_bias = true,
               .qk_norm = true,
               .rope = {.theta = 500, .scaling = RopeScaling::kLlama3, .context = 32}},
              {{9}, 13});
  expect_model(model, "llama_of_relatives", 2e-5);
}

void expect_optimizer(const std::string& name, double lr, bool decay,
                      const std::function<std::unique_ptr<Optimizer>(const std::vector<Slot>&)>& make) {
  const std::string at = "optimizers/" + name + "/";
  const Tensor gradients = stored(at + "gradients"), after = stored(at + "after");
  Slot slot;
  slot.name = "p";
  slot.master = stored(at + "start");
  slot.region = slot.master.shape();
  slot.decay = decay;
  slot.gradient = gradients.slice(0, 0, 1).reshape(slot.region.shape);
  auto optimizer = make({slot});
  for (int64_t step = 0; step < gradients.dim(0); ++step) {
    slot.gradient = gradients.slice(0, step, step + 1).reshape(slot.region.shape);
    optimizer->set_lr(lr);
    optimizer->step({slot}, {.grad_scale = 1, .finite = true});
    expect_near(slot.master, after.slice(0, step, step + 1).reshape(slot.region.shape),
                2e-6,  // without fused arithmetic 1.4e-6
                str(name, " after step ", step));
  }
}

TEST(GoldenOptimizer, Sgd) {
  expect_optimizer("sgd", 0.1, false, [](auto& s) { return make_sgd({}, s); });
  expect_optimizer("sgd_momentum", 0.1, false, [](auto& s) { return make_sgd({.momentum = 0.9}, s); });
  expect_optimizer("sgd_nesterov_decay", 0.1, true,
                   [](auto& s) { return make_sgd({.momentum = 0.9, .weight_decay = 0.05, .nesterov = true}, s); });
}

TEST(GoldenOptimizer, AdamW) {
  expect_optimizer("adamw", 0.02, true, [](auto& s) { return make_adamw({.weight_decay = 0}, s); });
  expect_optimizer("adamw_decay", 0.02, true, [](auto& s) {
    return make_adamw({.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1}, s);
  });
}

TEST(GoldenSchedule, EachKind) {
  const ConstantSchedule constant;
  const LinearSchedule linear({.final_ratio = 0.1});
  const CosineSchedule cosine({.final_ratio = 0.1});
  const StepSchedule step_by_step({.every = 9, .factor = 0.4});
  const std::pair<const char*, const Schedule*> kinds[] = {
      {"constant", &constant}, {"linear", &linear}, {"cosine", &cosine}, {"step", &step_by_step}};
  for (auto& [name, schedule] : kinds) {
    const auto rates = stored(str("schedules/", name)).to_vector();
    ASSERT_EQ(rates.size(), 50u);
    for (size_t step = 0; step < rates.size(); ++step)
      EXPECT_NEAR(learning_rate(*schedule, 7, 0.3, static_cast<int64_t>(step), 50), rates[step], 1e-12)
          << name << " at step " << step;
  }
}

}  // namespace
}  // namespace lockstep::golden_test
