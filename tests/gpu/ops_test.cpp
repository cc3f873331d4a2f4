// Every operation in every type, forward and backward, on a GPU: near the CPU's fp64 on the same inputs, and the same
// bits again; of those that only move values or compute element by element, the CPU's own bits.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "core/device/backend.h"
#include "core/models/gpt.h"
#include "core/nn/key_value_cache.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/core/ops/op_cases.h"
#include "tests/gpu/gpu.h"
#include "tests/support/gradcheck.h"

namespace lockstep {
namespace {

using namespace testing;
using Inputs = std::vector<Tensor>;

void check_on_gpu(const std::string& name, const Function& f, const Inputs& inputs, const Tolerance& tolerance,
                  Exact exact) {
  if (gpu_is_fake()) exact = Exact::kAll;
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const std::string what = str(name, " in ", dtype);
    const Values got = with_gradients(f, inputs, dtype, gpu_device());
    expect_equal_bits(got, with_gradients(f, inputs, dtype, gpu_device()), str(what, ", a second time"));
    if (exact != Exact::kNothing) {
      const Values cpu = with_gradients(f, inputs, dtype, Device{});
      ASSERT_EQ(got.size(), cpu.size());
      for (size_t t = 0; t < (exact == Exact::kAll ? got.size() : 1); ++t)
        expect_equal_bits({got[t]}, {cpu[t]}, str(what, t ? str(", gradient ", t - 1) : "", ", beside the CPU's"));
    }
    Inputs rounded;
    for (const Tensor& t : inputs) rounded.push_back(is_floating(t.dtype()) ? raw::cast(t, dtype) : t);
    expect_close(got, with_gradients(f, rounded, DType::kFloat64, Device{}), dtype, tolerance, what);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

class EachOp : public ::testing::TestWithParam<OpCase> {};
INSTANTIATE_TEST_SUITE_P(Small, EachOp, ::testing::ValuesIn(op_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(EachOp, OnTheGpu) {
  const OpCase& c = GetParam();
  constexpr double kTerms = 300;  // the longest sum among the cases
  check_on_gpu(c.name, c.f, c.inputs, {kTerms, 4 * c.scale}, c.on_gpu);
}

// --- Extents that fill a GPU, and odd ones beside them

struct Input {
  Shape shape;
  double low = -1, high = 1;
  int64_t below = 0;  // where given: indices below it instead
};
struct Case {
  std::string name;
  Function f;
  std::vector<Input> inputs;
  Tolerance tolerance = {};
  Exact exact = Exact::kNothing;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

Tensor make(const Input& in, uint64_t seed) {
  if (!in.below) return random_tensor(in.shape, seed, in.low, in.high, DType::kFloat32);
  std::vector<int32_t> v(static_cast<size_t>(in.shape.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int32_t>(i * i * 31 % static_cast<size_t>(in.below));
  return Tensor::of(v, in.shape);
}

// Rows of the large cases: sized for a GPU, or smaller for the fake one.
int64_t many(int64_t rows) { return gpu_is_fake() ? std::max<int64_t>(1, rows / 16) : rows; }
int64_t vocabulary() { return gpu_is_fake() ? 5003 : 50304; }

std::vector<Case> products() {
  std::vector<Case> out;
  auto add_linear = [&](int64_t rows, int64_t in, int64_t width, bool bias = true) {
    std::vector<Input> inputs{{{rows, in}}, {{width, in}}};
    if (bias) inputs.push_back({{width}});
    out.push_back({str("linear_", rows, "_", in, "_", width),
                   [](const Inputs& x) { return linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor()); },
                   inputs,
                   {static_cast<double>(std::max({rows, in, width}))}});
  };
  for (int64_t c : gpu_is_fake() ? std::vector<int64_t>{96, 200} : std::vector<int64_t>{768, 1600}) {  // GPT-2's
    add_linear(many(256), c, 3 * c);
    add_linear(many(256), c, c);
    add_linear(many(256), c, 4 * c);
    add_linear(many(256), 4 * c, c);
  }
  add_linear(many(64), 96, vocabulary(), false);
  add_linear(many(1024), gpu_is_fake() ? 1152 : 9216, 128);
  add_linear(1, 1, 1);
  add_linear(37, 801, 83);
  add_linear(3, 5, 7, false);
  add_linear(129, 65, 1, false);
  add_linear(1, 65, 129);
  // Weights as a model begins with them, so that gelu gets what it gets there.
  auto add_feed_forward = [&](int64_t rows, int64_t in, int64_t hidden, bool bias = true) {
    const double of_in = std::sqrt(3.0 / static_cast<double>(in)),
                 of_hidden = std::sqrt(3.0 / static_cast<double>(hidden));
    std::vector<Input> inputs{
        {{rows, in}, -2, 2}, {{hidden, in}, -of_in, of_in}, {{in, hidden}, -of_hidden, of_hidden}};
    if (bias) inputs.insert(inputs.end(), {{{hidden}}, {{in}}});
    out.push_back({str("feed_forward_", rows, "_", in, "_", hidden, bias ? "" : "_without_biases"),
                   [bias](const Inputs& x) {
                     return feed_forward(x[0], x[1], bias ? x[3] : Tensor(), x[2], bias ? x[4] : Tensor());
                   },
                   inputs,
                   {static_cast<double>(std::max(rows, hidden)), 12}});
  };
  for (int64_t c : gpu_is_fake() ? std::vector<int64_t>{96, 200} : std::vector<int64_t>{768, 1600})
    for (bool bias : {true, false}) add_feed_forward(many(2048), c, 4 * c, bias);
  add_feed_forward(37, 83, 129);  // no multiple of 8: passes after the products
  add_feed_forward(37, 83, 136);  // of the gelu's alone
  add_feed_forward(1, 64, 256);
  out.push_back(
      {"batched", [](const Inputs& x) { return matmul(x[0], x[1]); }, {{{6, 4, 33, 70}}, {{6, 4, 70, 19}}}, {70}});
  out.push_back({"batched_of_transposed",
                 [](const Inputs& x) { return matmul(transpose(x[0], 1, 2), transpose(x[1], 1, 2)); },
                 {{{5, 64, 48}}, {{5, 40, 64}}},
                 {64}});
  return out;
}

std::vector<Case> rows() {
  std::vector<Case> out;
  const int64_t n = many(515);
  for (int64_t cols : {1, 31, 768, 1600, 4097}) {
    const double terms = static_cast<double>(std::max(n, cols));
    if (cols > 1) {  // of one column, nothing but rounding is left
      out.push_back({str("layer_norm_", cols),
                     [](const Inputs& x) { return layer_norm(x[0], x[1], x[2]); },
                     {{{n, cols}}, {{cols}}, {{cols}}},
                     {terms, 12}});
      out.push_back({str("add_layer_norm_", cols),
                     [](const Inputs& x) {
                       const AddLayerNorm norm = add_layer_norm(x[0], x[1], x[2], x[3]);
                       return add(norm.sum, norm.y);
                     },
                     {{{n, cols}}, {{n, cols}}, {{cols}}, {{cols}}},
                     {terms, 12}});
      out.push_back({str("rms_norm_", cols),
                     [](const Inputs& x) { return rms_norm(x[0], x[1]); },
                     {{{n, cols}}, {{cols}}},
                     {terms, 12}});
    }
    out.push_back(
        {str("softmax_", cols), [](const Inputs& x) { return softmax(x[0]); }, {{{n, cols}, -3, 3}}, {terms, 8}});
    out.push_back({str("sum_rows_", cols), [](const Inputs& x) { return sum(x[0], {1}); }, {{{n, cols}}}, {terms}});
    out.push_back({str("sum_columns_", cols), [](const Inputs& x) { return sum(x[0], {0}); }, {{{n, cols}}}, {terms}});
  }
  for (int64_t cols : {int64_t(10), int64_t(65), vocabulary()}) {
    const std::vector<Input> inputs{{{64, cols}, -3, 3}, {{64}, 0, 0, cols}};
    const Tolerance tolerance{static_cast<double>(cols), 12};
    out.push_back(
        {str("cross_entropy_", cols), [](const Inputs& x) { return cross_entropy(x[0], x[1]); }, inputs, tolerance});
    out.push_back({str("cross_entropy_with_gradient_", cols),
                   [](const Inputs& x) {
                     WithLossGradient predicted(0.75);
                     return cross_entropy(affine(x[0], 1), x[1]);
                   },
                   inputs, tolerance});
  }
  out.push_back({"one_long_row", [](const Inputs& x) { return softmax(x[0]); }, {{{1, 40001}, -3, 3}}, {40001, 16}});
  out.push_back({"group_norm",
                 [](const Inputs& x) { return group_norm(x[0], 8, x[1], x[2]); },
                 {{{many(64), 24, 24, 64}}, {{64}}, {{64}}},
                 {static_cast<double>(many(64) * 24 * 24), 12}});
  const int64_t all = many(1 << 20) + 1, tall = many(4096) + 1;
  out.push_back({"sum_all", [](const Inputs& x) { return sum(x[0]); }, {{{all}}}, {static_cast<double>(all)}});
  out.push_back({"bias",
                 [](const Inputs& x) { return add(x[0], x[1]); },
                 {{{tall, 770}}, {{770}}},
                 {static_cast<double>(tall)},
                 Exact::kResult});
  return out;
}

std::vector<Case> elements() {
  const int64_t n = many(1 << 20) + 3, tokens = many(8192), images = many(64);
  const double of_tokens = static_cast<double>(tokens);
  const Function look_up = [](const Inputs& x) { return embedding(x[0], x[1]); };
  return {
      {"gelu", [](const Inputs& x) { return gelu(x[0]); }, {{{n}, -4, 4}}, {}, Exact::kAll},
      {"add", [](const Inputs& x) { return add(x[0], x[1]); }, {{{n}}, {{n}}}, {}, Exact::kAll},
      {"tanh_log_exp_sqrt",
       [](const Inputs& x) { return tanh(log(exp(sqrt(x[0])))); },
       {{{n}, 0.25, 1.5}},
       {1, 16},
       Exact::kAll},
      {"relu_of_a_view", [](const Inputs& x) { return relu(transpose(x[0], 0, 1)); }, {{{257, 199}}}, {}, Exact::kAll},
      {"permute",
       [](const Inputs& x) {
         return affine(permute(x[0], {5, 3, 1, 0, 2, 4}), 3, 1);
       },
       {{{2, 3, 4, 5, 6, 7}}},
       {},
       Exact::kAll},
      {"embedding", look_up, {{{997, 768}}, {{tokens}, 0, 0, 997}}, {of_tokens}, Exact::kAll},
      {"embedding_of_one_row", look_up, {{{3, 65}}, {{tokens}, 0, 0, 1}}, {of_tokens}, Exact::kAll},
      {"max_pool", [](const Inputs& x) { return max_pool2d(x[0], 2, 2); }, {{{images, 24, 24, 64}}}, {}, Exact::kAll},
      {"max_pool_overlapping",
       [](const Inputs& x) { return max_pool2d(x[0], 3, 2); },
       {{{images, 23, 25, 17}}},
       {4},
       Exact::kAll},
      {"avg_pool",
       [](const Inputs& x) { return avg_pool2d(x[0], 3, 2, 1); },
       {{{images, 24, 25, 40}}},
       {9},
       Exact::kAll},
      {"adaptive_avg_pool",
       [](const Inputs& x) { return adaptive_avg_pool2d(x[0], 7, 5); },
       {{{images, 23, 24, 17}}},
       {25},
       Exact::kAll},
      {"upsample",
       [](const Inputs& x) {
         return upsample2d(Upsampling::kBilinear, upsample2d(Upsampling::kNearest, x[0], 2), 31, 50);
       },
       {{{images, 11, 12, 40}}},
       {16},
       Exact::kAll},
  };
}

std::vector<Case> convolutions() {
  std::vector<Case> out;
  auto add_conv = [&](const char* name, const Shape& x, const Shape& w, bool bias, const ConvOptions& options) {
    std::vector<Input> inputs{{x}, {w}};
    if (bias) inputs.push_back({{w[0]}});
    out.push_back({name,
                   [=](const Inputs& in) { return conv2d(in[0], in[1], bias ? in[2] : Tensor(), options); },
                   inputs,
                   {static_cast<double>(x[0] * x[1] * x[2])}});  // of a weight's gradient
  };
  const int64_t images = many(64);
  add_conv("mnist_first", {images, 28, 28, 1}, {32, 3, 3, 1}, true, {});
  add_conv("mnist_second", {images, 26, 26, 32}, {64, 3, 3, 32}, true, {});
  add_conv("padded", {images, 14, 14, 24}, {40, 3, 3, 24}, false, {.padding = 1});
  add_conv("strided", {images, 15, 13, 16}, {8, 3, 3, 16}, true, {.stride = 2, .padding = 1});
  add_conv("one_by_one", {images, 9, 9, 16}, {24, 1, 1, 16}, false, {});
  add_conv("dilated", {images, 14, 14, 24}, {40, 3, 3, 24}, true, {.padding = 2, .dilation = 2});
  add_conv("in_groups", {images, 14, 14, 32}, {48, 3, 3, 8}, true, {.stride = 2, .padding = 1, .groups = 4});
  add_conv("depthwise", {images, 14, 14, 64}, {64, 3, 3, 1}, true, {.padding = 1, .groups = 64});
  add_conv("odd_depthwise", {images, 13, 9, 35}, {35, 3, 3, 1}, true,
           {.stride = 2, .padding = 2, .dilation = 2, .groups = 35});
  add_conv("odd_channels", {3, 9, 8, 5}, {7, 5, 4, 5}, true, {.stride = 3, .padding = 2});
  return out;
}

std::vector<Case> attentions() {
  std::vector<Case> out;
  auto add_attention = [&](int64_t batch, int64_t time, int64_t heads, int64_t dim) {
    out.push_back({str(batch, "_", time, "_", heads, "_", dim),
                   [heads](const Inputs& x) { return causal_attention(x[0], heads); },
                   {{{batch, time, 3 * heads * dim}}},
                   {static_cast<double>(time), 16}});
  };
  auto add_grouped = [&](int64_t batch, int64_t time, int64_t heads, int64_t kv_heads, int64_t dim, int64_t window) {
    out.push_back({str(batch, "_", time, "_", heads, "_", kv_heads, "_", dim, "_window_", window),
                   [window](const Inputs& x) { return causal_attention(x[0], x[1], x[2], window); },
                   {{{batch, time, heads, dim}}, {{batch, time, kv_heads, dim}}, {{batch, time, kv_heads, dim}}},
                   {static_cast<double>(time * heads / kv_heads), 16}});
  };
  add_grouped(2, gpu_is_fake() ? 128 : 1024, 12, 4, 64, 0);
  add_grouped(1, 300, 8, 1, 128, 0);
  add_grouped(2, gpu_is_fake() ? 128 : 1024, 4, 4, 64, 100);
  add_grouped(2, 130, 4, 2, 32, 3);
  add_grouped(1, 97, 4, 2, 6, 40);  // no multiple of 8: not for a library's kernel
  auto add_masked = [&](const char* name, int64_t time, int64_t keys, double drop) {
    out.push_back({name,
                   [drop](const Inputs& x) {
                     WithRandom with({1, 2, std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{5, 9})});
                     return attention(x[0], x[1], x[2], {.drop_probability = drop, .drop_site = 3});
                   },
                   {{{2, time, 8, 64}}, {{2, keys, 4, 64}}, {{2, keys, 4, 64}}},
                   {static_cast<double>(2 * std::max(time, keys)), 16}});
  };
  add_masked("cross", 100, 300, 0);
  add_masked("cross_of_more_queries", 257, 96, 0);
  add_masked("dropout", 130, 130, 0.1);
  add_attention(2, gpu_is_fake() ? 128 : 1024, 12, 64);
  add_attention(1, gpu_is_fake() ? 96 : 512, 25, 64);
  add_attention(2, 130, 3, 128);
  add_attention(3, 65, 2, 32);
  add_attention(2, 1, 2, 64);
  add_attention(2, 37, 2, 6);  // no multiple of 8: not for a library's kernel
  return out;
}

class Large : public ::testing::TestWithParam<Case> {};
std::string name_of(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Products, Large, ::testing::ValuesIn(products()), name_of);
INSTANTIATE_TEST_SUITE_P(Rows, Large, ::testing::ValuesIn(rows()), name_of);
INSTANTIATE_TEST_SUITE_P(Elements, Large, ::testing::ValuesIn(elements()), name_of);
INSTANTIATE_TEST_SUITE_P(Convolutions, Large, ::testing::ValuesIn(convolutions()), name_of);
INSTANTIATE_TEST_SUITE_P(Attention, Large, ::testing::ValuesIn(attentions()), name_of);

TEST_P(Large, OnTheGpu) {
  const Case& c = GetParam();
  Inputs inputs;
  for (const Input& in : c.inputs) inputs.push_back(make(in, inputs.size() + 1));
  check_on_gpu(c.name, c.f, inputs, c.tolerance, c.exact);
}

// Else runs with documents take kernels of our own, an order of magnitude slower.
TEST(Masks, OfTheLibraryAreProven) {
  on_stream(gpu_device(), 1, [] {
    DeviceQueue& queue = *current_stream().device_queue();
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16})
      for (const int64_t dim : {64, 128})
        for (const auto& [group, window] : {std::pair{1, 0}, {4, 0}, {4, 100}})
          EXPECT_EQ(device_backend().doubt_of_masks(queue, {dtype, dim, group, window, true}), "")
              << to_text(dtype) << ", heads of " << dim << " in groups of " << group << ", window " << window;
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16})
      EXPECT_EQ(device_backend().doubt_of_masks(queue, {dtype, 64, 1, 0, false}), "") << to_text(dtype);
    return Values{};
  });
}

// New tokens behind cached keys, of sequences of unequal lengths: a prompt's last part, and one token at a time.
TEST(CachedKeys, AreSeenFromEachSequencesOwnPosition) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
    for (const int64_t time : {1, 3, 70})
      for (const int64_t window : {0, 100}) {
        const auto work = [&](DType computed) {
          const NoGrad no_grad;
          const auto part = [&](const Shape& shape, uint64_t seed) {
            return raw::cast(raw::cast(random_tensor(shape, seed, -1, 1, DType::kFloat32), dtype), computed);
          };
          const Tensor q = part({2, time, 8, 64}, 1), k = part({2, 300, 4, 64}, 2), v = part({2, 300, 4, 64}, 3),
                       starts = Tensor::of(std::vector<int32_t>{230, 17}, {2});
          return Values{attention(q, k, v, {.causal = true, .window = window, .starts = starts}).to_vector()};
        };
        const std::string what = str(time, " tokens in ", dtype, ", window ", window);
        const Values got = on_stream(gpu_device(), 1, [&] { return work(dtype); });
        expect_equal_bits(got, on_stream(gpu_device(), 1, [&] { return work(dtype); }), str(what, ", a second time"));
        expect_close(got, on_stream(Device{}, 1, [&] { return work(DType::kFloat64); }), dtype, {300, 16}, what);
      }
}

// A model's passes over a cache: near what one pass over all tokens computes on a CPU.
TEST(CachedKeys, OfAModelStayWithTheirLayers) {
  const auto work = [](const std::vector<int64_t>& counts) {
    const NoGrad no_grad;
    const TaskSpec task{{64}, 37};
    Gpt model({.layers = 2, .heads = 2, .width = 128}, task);
    place_parameters(model, 3);
    model.eval();
    KeyValueCache cache(1, 64);
    Values last;
    int32_t next = 0;
    for (const int64_t count : counts) {
      std::vector<int32_t> tokens;
      for (int64_t i = 0; i < count; ++i, ++next) tokens.push_back((next * next + 5 * next) % 37);
      const CachedPass pass(cache, {count});
      const Tensor y = static_cast<TokenTransformer&>(model)(Tensor::of(tokens, {1, count}), pass.scope());
      last = {y.slice(1, y.dim(1) - 1, y.dim(1)).to_vector()};  // with a cache the last logits alone
    }
    return last;
  };
  const Values wanted = on_stream(Device{}, 1, [&] { return work({50}); });
  expect_close(on_stream(gpu_device(), 1,
                         [&] {
                           return work({30, 17, 1, 1, 1});
                         }),
               wanted, DType::kFloat32, {512, 64}, "logits");
}

// TF32 would drop the low bit of these factors; their sums are exact in any order.
TEST(Products, OfFp32KeepAllBits) {
  const double a = 1 + 0x1p-12;
  const Values got = on_stream(gpu_device(), 1, [&] {
    return Values{matmul(Tensor::full({16, 32}, a), Tensor::full({32, 16}, 1)).to_vector()};
  });
  EXPECT_EQ(got[0], std::vector<double>(16 * 16, 32 * a));
}

// Whether the library fuses gelu and bias gradients or not, on a GPU they are those of separate ops but for roundings,
// and the gradients of a second sweep are added in full. Which shapes it refused is the library's affair, and no
// failure: the log has them.
TEST(Products, FusedAreNearSeparateOnes) {
  const int64_t rows = many(1024), c = 256;
  auto sweeps = [&](bool fused, DType dtype) {
    return on_stream(gpu_device(), 1, [&] {
      std::vector<Tensor> p;
      for (const Shape& s : {Shape{rows, c}, Shape{4 * c, c}, Shape{4 * c}, Shape{c, 4 * c}, Shape{c}}) {
        p.push_back(Tensor::empty(s, dtype));
        raw::copy(p.back(), random_tensor(s, p.size(), -0.1, 0.1, DType::kFloat32));
        require_grad(p.back());
      }
      Values out;
      for (int sweep = 0; sweep < 2; ++sweep) {
        const Tensor y =
            fused ? feed_forward(p[0], p[1], p[2], p[3], p[4]) : linear(gelu(linear(p[0], p[1], p[2])), p[3], p[4]);
        if (sweep == 0) out.push_back(y.to_vector());
        backward(sum(mul(y, y)));
      }
      for (const Tensor& t : p) out.push_back(grad_of(t).to_vector());
      return out;
    });
  };
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
    expect_close(sweeps(true, dtype), sweeps(false, dtype), dtype, {static_cast<double>(rows), 12}, str(dtype));
  std::istringstream choices(device_backend().choices());
  for (std::string line; std::getline(choices, line);)
    if (line.find(": none: ") != line.npos) std::cout << "[ refused  ] " << line << "\n";
}

// The gradients of a GPT-2's widest weight and its bias, whose sums over many rows tempt a library to split them.
TEST(Products, GradientsOfALinearHaveTheSameBitsEachTime) {
  const int64_t n = many(4096), in = gpu_is_fake() ? 96 : 768, out = 4 * in;
  on_stream(gpu_device(), 1, [&] {
    const Tensor g = Tensor::empty({n, out}, DType::kBFloat16), x = Tensor::empty({n, in}, DType::kBFloat16);
    raw::copy(g, random_tensor(g.shape(), 1, -1, 1, DType::kFloat32));
    raw::copy(x, random_tensor(x.shape(), 2, -1, 1, DType::kFloat32));
    Values first;
    for (int run = 0; run < 20 && !::testing::Test::HasFatalFailure(); ++run) {
      const Tensor weight = Tensor::empty({out, in}, DType::kBFloat16), bias = Tensor::empty({out}, DType::kBFloat16);
      raw::linear_gradients({weight}, {bias}, g, x);
      Values got{weight.to_vector(), bias.to_vector()};
      if (run == 0) first = std::move(got);
      else expect_equal_bits(first, got, str("run ", run));
    }
    return Values{};
  });
}

TEST(Products, OfNothingAreZeroOrTheBias) {
  on_stream(gpu_device(), 1, [] {
    const Tensor c = Tensor::full({2, 3}, 9), bias = Tensor::of(std::vector<float>{1, 2, 3}, {3});
    const std::vector<double> of_bias{1, 2, 3, 1, 2, 3};
    raw::gemm(c, Tensor::zeros({2, 0}), Tensor::zeros({0, 3}), bias);
    EXPECT_EQ(c.to_vector(), of_bias);
    raw::gemm(c, Tensor::zeros({2, 0}), Tensor::zeros({0, 3}), {}, true);
    EXPECT_EQ(c.to_vector(), of_bias);
    raw::gemm(c, Tensor::zeros({2, 0}), Tensor::zeros({0, 3}));
    EXPECT_EQ(c.to_vector(), std::vector<double>(6, 0.0));
    return Values{};
  });
}

}  // namespace
}  // namespace lockstep
