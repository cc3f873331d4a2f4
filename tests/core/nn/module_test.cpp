// Modules and models: names, hooks, initial values, training and evaluation; models as functions of their inputs.
#include "core/nn/module.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/autograd/node.h"
#include "core/base/ignore_index.h"
#include "core/device/allocator.h"
#include "core/metrics/metric.h"
#include "core/models/convnet.h"
#include "core/models/gpt.h"
#include "core/models/llama.h"
#include "core/models/mlp.h"
#include "core/nn/layers.h"
#include "core/nn/lora.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/files.h"

namespace lockstep::module_test {
namespace {

using test::expect_error;

GptOptions small_gpt(double dropout = 0) { return {.layers = 2, .heads = 2, .width = 8, .dropout = dropout}; }

std::vector<std::string> names(const Module& m) {
  std::vector<std::string> out;
  for (auto& p : m.parameters()) out.push_back(p.name);
  return out;
}

Tensor tokens(const std::vector<int32_t>& v, int64_t rows) {
  return Tensor::of(v, {rows, static_cast<int64_t>(v.size()) / rows});
}

TEST(Module, NamesItsTree) {
  Gpt model({.layers = 1, .heads = 2, .width = 8}, {{4}, 11});
  EXPECT_EQ(names(model), (std::vector<std::string>{
                              "wte.weight", "wpe.weight", "blocks.0.ln1.weight", "blocks.0.ln1.bias",
                              "blocks.0.ln2.weight", "blocks.0.ln2.bias", "blocks.0.qkv.weight", "blocks.0.qkv.bias",
                              "blocks.0.proj.weight", "blocks.0.proj.bias", "blocks.0.up.weight", "blocks.0.up.bias",
                              "blocks.0.down.weight", "blocks.0.down.bias", "ln.weight", "ln.bias"}));
  model.name_tree();
  for (auto& [name, child] : model.children()) {
    EXPECT_EQ(child->name(), name);
    for (auto& [inner, grandchild] : child->children()) EXPECT_EQ(grandchild->name(), name + "." + inner);
  }
  for (auto& p : model.parameters()) EXPECT_EQ(p.parameter->decay, p.parameter->value.rank() >= 2) << p.name;
  const auto without = names(Gpt({.layers = 1, .heads = 2, .width = 8, .bias = false}, {{4}, 11}));
  for (const std::string& n : without) EXPECT_EQ(n.find("bias"), n.npos);
}

TEST(Lora, PartsOfAFusedLayerHaveAdaptersOfTheirOwn) {
  const auto adapters = [](std::vector<std::string> targets) {
    Gpt model({.layers = 1, .heads = 2, .width = 8}, {{4}, 11});
    LoraOptions o;
    o.rank = 2;
    o.targets = std::move(targets);
    add_adapters(model, o);
    std::map<std::string, Shape> out;
    for (auto& p : model.parameters())
      if (is_lora_parameter(p.name)) out[p.name] = p.parameter->value.shape();
    return out;
  };
  EXPECT_EQ(adapters({"*.q", "*.qkv.v"}), (std::map<std::string, Shape>{{"blocks.0.qkv.q.lora_A", {2, 8}},
                                                                        {"blocks.0.qkv.q.lora_B", {8, 2}},
                                                                        {"blocks.0.qkv.v.lora_A", {2, 8}},
                                                                        {"blocks.0.qkv.v.lora_B", {8, 2}}}));
  EXPECT_EQ(adapters({"*qkv*"}),
            (std::map<std::string, Shape>{{"blocks.0.qkv.lora_A", {2, 8}}, {"blocks.0.qkv.lora_B", {24, 2}}}));
  expect_error(ExitCode::kConfig, {"'*.qkv.w' matches no linear layer"}, [&] { adapters({"*.qkv.q", "*.qkv.w"}); });
  expect_error(ExitCode::kConfig, {"'*.q' adds no adapter"}, [&] { adapters({"*.q", "*.qkv"}); });
}

TEST(Lora, TargetsMayHaveTheNamesOfPeft) {
  const auto adapted = [](Module&& model, std::vector<std::string> targets) {
    LoraOptions o;
    o.rank = 1;
    o.targets = std::move(targets);
    add_adapters(model, o);
    std::vector<std::string> out;
    for (auto& p : model.parameters())
      if (p.name.ends_with(kLoraA)) out.push_back(p.name.substr(0, p.name.size() - kLoraA.size()));
    return out;
  };
  using Names = std::vector<std::string>;
  const auto gpt = [&](Names targets) {
    return adapted(Gpt({.layers = 1, .heads = 2, .width = 8}, {{4}, 11}), std::move(targets));
  };
  const auto llama = [&](Names targets) {
    LlamaOptions o;
    o.layers = 1, o.heads = o.kv_heads = 2, o.width = 8, o.hidden = 16, o.tied = false;
    return adapted(Llama(o, {{4}, 11}), std::move(targets));
  };
  const std::string block = "blocks.0.", attention = "blocks.0.attention.";
  EXPECT_EQ(llama({"q_proj", "v_proj"}), (Names{attention + "q", attention + "v"}));
  EXPECT_EQ(llama({"k_proj", "o_proj"}), (Names{attention + "k", attention + "proj"}));
  EXPECT_EQ(llama({"gate_proj", "*.up_proj", "down_proj"}), (Names{block + "gate", block + "up", block + "down"}));
  EXPECT_EQ(llama({"lm_head"}), Names{"head"});
  EXPECT_EQ(llama({"all-linear"}).size(), 7u) << "all but the head";
  EXPECT_EQ(gpt({"c_attn"}), Names{block + "qkv"});
  EXPECT_EQ(gpt({"c_proj"}), (Names{block + "proj", block + "down"})) << "as peft, of attention and MLP";
  EXPECT_EQ(gpt({"c_fc", "q_proj"}), (Names{block + "qkv.q", block + "up"}));
  EXPECT_EQ(gpt({"all-linear"}), gpt({"*.qkv", "*.proj", "*.up", "*.down"}));
  expect_error(ExitCode::kConfig, {"'gate_proj' matches no linear layer", "its layers are *.qkv, *.proj, *.up, *.down"},
               [&] { gpt({"gate_proj"}); });
  expect_error(ExitCode::kConfig, {"did you mean '*.qkv'?"}, [&] { gpt({"qkv"}); });
}

class TwoLayers : public ModuleOf<Tensor> {
 public:
  TwoLayers() : up_(child<Linear>("up", 4, 8)), down_(child<Linear>("down", 6, 4)) {}
  Tensor forward(const Tensor& x) override { return down_(up_(x)); }

 private:
  Linear &up_, &down_;
};
class OuterOfTwo : public ModuleOf<Tensor> {
 public:
  OuterOfTwo() : mlp_(child<TwoLayers>("blocks.3.mlp")) {}
  Tensor forward(const Tensor& x) override { return wrong_ ? matmul(x, x) : mlp_(x); }
  bool wrong_ = false;

 private:
  TwoLayers& mlp_;
};

TEST(Module, ShapesThatDoNotFitAreToldWithTheModule) {
  OuterOfTwo model;
  place_parameters(model, 1);
  for (const bool recompute : {false, true}) {
    for (auto& [_, block] : model.children()) block->set_recompute(recompute);
    expect_error(ExitCode::kInternal,
                 {"in the forward pass of module blocks.3.mlp.down: ", "[2, 8]", "[4, 6]", "core/ops/matmul.cpp"}, [&] {
                   model(Tensor::zeros({2, 4}));
                 });
  }
  model.wrong_ = true;
  expect_error(ExitCode::kInternal, {"in the forward pass of the model itself: matmul: ", "[2, 4]"}, [&] {
    model(Tensor::zeros({2, 4}));
  });
}

// Of k and v: the outputs of each change by its adapter, those of q do not.
TEST(Lora, AnAdapterOfAPartChangesItsOutputsAlone) {
  struct Root : ModuleOf<Tensor> {
    Linear& qkv = child<Linear>("qkv", 3, 6, false);
    Tensor forward(const Tensor& x) override { return qkv(x); }
  } root;
  LoraOptions o;
  o.rank = 1;
  o.alpha = 2;
  o.targets = {"qkv.k", "qkv.v"};
  add_adapters(root, o);
  place_parameters(root, 1);
  NoGrad no_grad;
  const Tensor x = Tensor::of(std::vector<float>{1, 2, 3}, {1, 3});
  const std::vector<double> before = root(x).to_vector();
  for (auto& p : root.parameters()) {
    const auto set = [&](std::vector<float> values) {
      raw::copy(p.parameter->value.detach(), Tensor::of(values, p.parameter->value.shape()));
    };
    if (p.name == "qkv.k.lora_A") set({1, 0, 0});
    if (p.name == "qkv.v.lora_A") set({0, 0, 1});
    if (p.name == "qkv.k.lora_B") set({1, 10});
    if (p.name == "qkv.v.lora_B") set({100, 1000});
  }
  const std::vector<double> after = root(x).to_vector(), change = {0, 0, 2, 20, 600, 6000};
  for (size_t i = 0; i < change.size(); ++i) EXPECT_NEAR(after[i] - before[i], change[i], 1e-3) << i;
}

TEST(Module, TakesNoBytesUntilItIsPlaced) {
  const int64_t before = allocator_stats().bytes_in_use;
  Gpt model({.layers = 48, .heads = 16, .width = 4096}, {{2048}, 50000});  // some ten billion parameters
  int64_t count = 0;
  for (auto& p : model.parameters()) {
    EXPECT_FALSE(p.parameter->value.allocated());
    count += p.parameter->value.numel();
  }
  EXPECT_GT(count, int64_t(9) << 30);
  EXPECT_EQ(allocator_stats().bytes_in_use, before);
}

TEST(Module, InitialValuesAreFunctionsOfSeedAndName) {
  auto values = [](uint64_t seed, int64_t layers) {
    GptOptions o = small_gpt();
    o.layers = layers;
    Gpt model(o, {{4}, 11});
    place_parameters(model, seed);
    std::map<std::string, std::vector<double>> out;
    for (auto& p : model.parameters()) out[p.name] = p.parameter->value.to_vector();
    return out;
  };
  const auto a = values(1, 2), other = values(2, 2), deeper = values(1, 3);
  EXPECT_EQ(a, values(1, 2));
  EXPECT_NE(a.at("wte.weight"), other.at("wte.weight"));
  for (const char* name : {"wte.weight", "wpe.weight", "blocks.0.up.weight", "blocks.1.qkv.weight"})
    EXPECT_EQ(a.at(name), deeper.at(name)) << "whatever else is in the model";
  EXPECT_NE(a.at("blocks.0.up.weight"), a.at("blocks.1.up.weight"));
  EXPECT_EQ(a.at("ln.weight"), std::vector<double>(8, 1.0));
  EXPECT_EQ(a.at("ln.bias"), std::vector<double>(8, 0.0));
}

TEST(Hooks, SurroundForwardAndComeBeforeBackward) {
  Mlp model({.hidden = {5}}, {{3}, 2});
  place_parameters(model, 1);
  std::vector<std::string> order;
  for (auto& [name, child] : model.children())
    child->set_hooks({[&order, n = name] { order.push_back("before " + n); },
                      [&order, n = name] { order.push_back("after " + n); },
                      [&order, n = name] { order.push_back("backward " + n); }});
  for (auto& p : model.parameters())
    p.parameter->value.record()->on_grad = [&order, n = p.name] { order.push_back("final " + n); };
  Tensor loss = cross_entropy(model(Tensor::full({4, 3}, 0.5)), Tensor::zeros({4}, DType::kInt32));
  EXPECT_EQ(order, (std::vector<std::string>{"before layers.0", "after layers.0", "before head", "after head"}));
  order.clear();
  backward(loss);
  ASSERT_EQ(order.size(), 6u);
  EXPECT_EQ(order[0], "backward head");
  EXPECT_EQ(std::set<std::string>(order.begin() + 1, order.begin() + 3),
            (std::set<std::string>{"final head.weight", "final head.bias"}));
  EXPECT_EQ(order[3], "backward layers.0");
}

TEST(Hooks, SurroundANormOfASum) {
  LayerNorm norm(3);
  place_parameters(norm, 1);
  std::vector<std::string> order;
  norm.set_hooks(
      {[&] { order.push_back("before"); }, [&] { order.push_back("after"); }, [&] { order.push_back("backward"); }});
  Tensor a = Tensor::of(std::vector<float>{1, 2, 4}, {1, 3});
  require_grad(a);
  const AddLayerNorm out = norm.of_sum(a, a);
  EXPECT_EQ(order, (std::vector<std::string>{"before", "after"}));
  EXPECT_EQ(out.sum.to_vector(), (std::vector<double>{2, 4, 8}));
  EXPECT_EQ(out.y.to_vector(), norm.forward(out.sum).to_vector());
  for (auto& p : norm.parameters())
    p.parameter->value.record()->on_grad = [&, n = p.name] { order.push_back("final " + n); };
  order.clear();
  backward(sum(add(out.sum, out.y)));
  ASSERT_EQ(order.size(), 3u);
  EXPECT_EQ(order[0], "backward");
}

TEST(Dropout, BelongsToTrainingAlone) {
  Gpt model(small_gpt(0.5), {{4}, 11});
  place_parameters(model, 1);
  const Tensor x = tokens({1, 2, 3, 4, 5, 6, 7, 8}, 2);
  auto run = [&](int64_t step) {
    WithRandom with({1, step, std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{0, 1})});
    return model(x).to_vector();
  };
  EXPECT_EQ(run(1), run(1)) << "a micro-batch run again is the same";
  EXPECT_NE(run(1), run(2));
  model.eval();
  EXPECT_FALSE(model.training());
  EXPECT_EQ(run(1), run(2));
  EXPECT_NO_THROW(model(x)) << "and no samples need be known";
  model.train();
  EXPECT_NE(run(1), run(2));
}

TEST(Gpt, LooksBackOnly) {
  Gpt model(small_gpt(), {{6}, 11});
  place_parameters(model, 1);
  const auto a = model(tokens({1, 2, 3, 4, 5, 6}, 1)).to_vector(), b = model(tokens({1, 2, 3, 9, 8, 7}, 1)).to_vector();
  for (size_t i = 0; i < 3 * 11; ++i) ASSERT_EQ(a[i], b[i]);
  EXPECT_NE(a, b);
  EXPECT_EQ(model(tokens({1, 2, 3}, 1)).to_vector(), std::vector<double>(a.begin(), a.begin() + 33))
      << "a shorter text is a prefix";
}

TEST(Gpt, TiesItsHeadToItsEmbedding) {
  Gpt model(small_gpt(), {{4}, 11});
  place_parameters(model, 1);
  backward(cross_entropy(model(tokens({1, 2, 3, 4}, 1)), tokens({2, 3, 4, 5}, 1)));
  for (auto& p : model.parameters())
    if (p.name == "wte.weight") {
      const auto g = grad_of(p.parameter->value).to_vector();
      // Token 10 occurs nowhere in the input: its row's gradient comes from the head.
      double seen = 0;
      for (size_t i = 10 * 8; i < 11 * 8; ++i) seen += std::abs(g[i]);
      EXPECT_GT(seen, 0);
    }
}

LlamaOptions small_llama() { return {.layers = 2, .heads = 4, .width = 16, .kv_heads = 2, .hidden = 24}; }

TEST(Llama, NamesItsTree) {
  EXPECT_EQ(names(Llama({.layers = 1, .heads = 2, .width = 8, .qkv_bias = true, .qk_norm = true}, {{4}, 11})),
            (std::vector<std::string>{
                "wte.weight", "blocks.0.attention.norm.weight", "blocks.0.attention.q.weight",
                "blocks.0.attention.q.bias", "blocks.0.attention.k.weight", "blocks.0.attention.k.bias",
                "blocks.0.attention.v.weight", "blocks.0.attention.v.bias", "blocks.0.attention.q_norm.weight",
                "blocks.0.attention.k_norm.weight", "blocks.0.attention.proj.weight", "blocks.0.norm.weight",
                "blocks.0.gate.weight", "blocks.0.up.weight", "blocks.0.down.weight", "norm.weight", "head.weight"}));
  LlamaOptions tied = small_llama();
  tied.tied = true;
  for (const std::string& name : names(Llama(tied, {{4}, 11}))) EXPECT_NE(name, "head.weight");
}

TEST(Llama, ReplacesTheZerosOfItsOptions) {
  const LlamaOptions o = LlamaOptions{.heads = 8, .width = 1024}.resolved();
  EXPECT_EQ(o.kv_heads, 8);
  EXPECT_EQ(o.head_width, 128);
  EXPECT_EQ(o.hidden, 2752) << "8/3 of the width are 2730.7";
}

// Those that a GPU's library must have proven before it is asked under a mask.
TEST(Llama, ListsTheKindsOfItsAttention) {
  constexpr DType kType = DType::kBFloat16;
  LlamaOptions o = small_llama();
  EXPECT_EQ(Llama(o, {{6}, 11}).masked_attention(kType), (MaskedAttentions{{kType, 4, 2, 0, true}}));
  o.window = 2, o.window_from = 1, o.head_width = 8;
  EXPECT_EQ(Llama(o, {{6}, 11}).masked_attention(kType),
            (MaskedAttentions{{kType, 8, 2, 0, true}, {kType, 8, 2, 2, true}}));
  o.score_cap = 50;
  EXPECT_EQ(Llama(o, {{6}, 11}).masked_attention(kType), MaskedAttentions()) << "always by kernels of our own";
  EXPECT_EQ(Gpt({.layers = 2, .heads = 4, .width = 32}, {{6}, 11}).masked_attention(kType),
            (MaskedAttentions{{kType, 8, 1, 0, true}}));
}

TEST(Llama, LooksBackOnlyAndNoFurtherThanItsWindows) {
  LlamaOptions options = small_llama();
  options.window = 2;  // in two blocks: a token depends on the two before it
  for (int64_t window : {int64_t(0), options.window}) {
    options.window = window;
    Llama model(options, {{6}, 11});
    place_parameters(model, 1);
    const auto a = model(tokens({1, 2, 3, 4, 5, 6}, 1)).to_vector(),
               b = model(tokens({9, 2, 3, 4, 5, 8}, 1)).to_vector();
    for (size_t t = 0; t < 6; ++t) {
      const bool same =
          std::equal(a.begin() + static_cast<int64_t>(t) * 11, a.begin() + static_cast<int64_t>(t + 1) * 11,
                     b.begin() + static_cast<int64_t>(t) * 11);
      EXPECT_EQ(same, window > 0 && t >= 3 && t < 5) << "token " << t << ", window " << window;
    }
    EXPECT_EQ(model(tokens({1, 2, 3}, 1)).to_vector(), std::vector<double>(a.begin(), a.begin() + 33))
        << "a shorter text is a prefix";
  }
}

TEST(Llama, KnowsTheOrderOfTokens) {
  Llama model({.layers = 1, .heads = 2, .width = 8}, {{4}, 11});
  place_parameters(model, 1);
  const auto a = model(tokens({1, 2, 3, 4}, 1)).to_vector(), b = model(tokens({2, 1, 3, 4}, 1)).to_vector();
  EXPECT_NE(std::vector<double>(a.end() - 11, a.end()), std::vector<double>(b.end() - 11, b.end()));
}

// By transformers' _compute_yarn_parameters: rope_theta 100, factor 4, beta_fast 8, 64 positions, heads of 16.
TEST(Rope, YarnKeepsPairsThatTurnOften) {
  const RopeOptions yarn{.theta = 100, .scaling = RopeScaling::kYarn, .factor = 4, .context = 64, .beta_fast = 8};
  const double expected[] = {1.0,
                             0.47799012064933777,
                             0.22135943174362183,
                             0.09780536592006683,
                             0.03999999910593033,
                             0.014058532193303108,
                             0.007905694656074047,
                             0.004445698577910662};
  const std::vector<double> got = rope_frequencies(yarn, 16, 0);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(got[i], expected[i], 1e-7 * expected[i]) << i;
  EXPECT_NEAR(rope_score_scale(yarn), 1.138629436111989 * 1.138629436111989, 1e-12);
  EXPECT_EQ(rope_score_scale({.scaling = RopeScaling::kLlama3}), 1);
}

TEST(Llama, FrequenciesFollowTheirScaling) {
  const std::vector<double> plain = rope_frequencies({.theta = 500000}, 128, 0);
  ASSERT_EQ(plain.size(), 64u);
  EXPECT_EQ(plain[0], 1);
  EXPECT_NEAR(plain[32], 1 / std::sqrt(500000.0), 1e-16);
  const auto linear = rope_frequencies({.theta = 500000, .scaling = RopeScaling::kLinear, .factor = 4}, 128, 0);
  const auto llama3 = rope_frequencies({.theta = 500000, .scaling = RopeScaling::kLlama3, .factor = 8}, 128, 0);
  int kept = 0, between = 0, divided = 0;
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(linear[i], plain[i] / 4);
    EXPECT_LE(llama3[i], i ? llama3[i - 1] : 1);
    const double wavelength = 2 * 3.14159265358979 / plain[i];
    if (llama3[i] == plain[i]) {
      ++kept;
      EXPECT_LT(wavelength, 2048);
    } else if (llama3[i] == plain[i] / 8) {
      ++divided;
      EXPECT_GT(wavelength, 8192);
    } else {
      ++between;
      EXPECT_TRUE(wavelength >= 2048 && wavelength <= 8192) << wavelength;
    }
  }
  EXPECT_EQ(kept, 29);  // ln(2048 / 2 pi) / ln(500000) * 64 = 28.2
  EXPECT_EQ(divided, 29);
  EXPECT_EQ(between, 6);
}

TEST(Llama, SizesThatDoNotFitTogetherNameTheKey) {
  const auto refused = [](const LlamaOptions& o, std::initializer_list<std::string> words) {
    expect_error(ExitCode::kConfig, words, [&] { Llama(o, {{4}, 11}); });
  };
  refused({.heads = 3, .width = 16}, {"model.heads: 3", "model.width: 16"});
  refused({.heads = 4, .width = 16, .kv_heads = 3}, {"model.kv_heads: 3", "model.heads: 4"});
  refused({.heads = 4, .width = 16, .kv_heads = 8}, {"model.kv_heads: 8", "model.heads: 4"});
  refused({.heads = 4, .width = 12}, {"model.heads: 4", "width 3", "even"});
  refused({.heads = 4, .width = 12, .head_width = 5}, {"model.head_width: 5", "even"});
  refused({.heads = 1, .width = 512}, {"model.heads: 1", "width 512", "256"});
  refused({.rope = {.scaling = RopeScaling::kLlama3, .low_factor = 4, .high_factor = 4}},
          {"model.rope_low_factor: 4", "model.rope_high_factor: 4"});
  expect_error(ExitCode::kConfig, {"llama needs tokens", "[8, 8, 1]"}, [] { Llama(small_llama(), {{8, 8, 1}, 10}); });
  Llama model(small_llama(), {{4}, 11});
  place_parameters(model, 1);
  EXPECT_THROW(model(tokens({1, 2, 3, 4, 5}, 1)), Error);
}

TEST(Models, TrainOnSamplesIndependently) {
  Convnet model({.channels = {3, 4}, .hidden = 6}, {{8, 7, 2}, 5});
  place_parameters(model, 1);
  const Tensor x = Tensor::empty({3, 8, 7, 2});
  float* v = x.mutable_values<float>();
  for (int64_t i = 0; i < x.numel(); ++i) v[i] = static_cast<float>(i % 17) / 17;
  const auto all = model(x).to_vector(), second = model(x.slice(0, 1, 2)).to_vector();
  EXPECT_EQ(second, std::vector<double>(all.begin() + 5, all.begin() + 10));
}

TEST(Models, KeepAnOutputThatIsHeldOnTo) {
  Mlp model({.hidden = {5}}, {{3}, 4});
  place_parameters(model, 1);
  const Tensor x = Tensor::full({3, 3}, 0.5), y = Tensor::of(std::vector<int32_t>{2, 1, kIgnoreIndex}, {3});
  WithLossGradient predicted(0.5);
  const Tensor output = model(x);
  const auto before = output.to_vector();
  const double correct = count_correct(output, y).sum;
  const Tensor loss = cross_entropy(output, y), given_away = cross_entropy(model(x), y);
  EXPECT_EQ(loss.item(), given_away.item());
  EXPECT_EQ(output.to_vector(), before);
  EXPECT_EQ(count_correct(output, y).sum, correct);
}

TEST(Conv2d, HasGroupsAndDilation) {
  Conv2d conv(6, 4, 3, 1, 2, 2, 2);
  place_parameters(conv, 1);
  std::vector<float> values(1 * 5 * 4 * 6);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3;
  const Tensor x = Tensor::of(values, {1, 5, 4, 6});
  std::vector<Tensor> p;
  for (const auto& found : conv.parameters()) p.push_back(found.parameter->value);
  ASSERT_EQ(p.size(), 2u);
  const bool weight_first = p[0].rank() == 4;
  const Tensor &weight = p[weight_first ? 0 : 1], &bias = p[weight_first ? 1 : 0];
  EXPECT_EQ(weight.shape(), (Shape{4, 3, 3, 3}));
  const Tensor y = conv(x), wanted = conv2d(x, weight, bias, {.stride = 1, .padding = 2, .dilation = 2, .groups = 2});
  EXPECT_EQ(y.shape(), (Shape{1, 5, 4, 4}));
  EXPECT_EQ(y.to_vector(), wanted.to_vector());
  for (const float w : weight.to_vector<float>()) EXPECT_LE(std::abs(w), 1 / std::sqrt(27.0f));
  expect_error(ExitCode::kConfig, {"6 to 4 channels", "3 groups"}, [] { Conv2d(6, 4, 3, 1, 0, 1, 3); });
  expect_error(ExitCode::kConfig, {"0 groups"}, [] { Conv2d(6, 4, 3, 1, 0, 1, 0); });
}

TEST(Models, ThatDoNotFitTheDataAreConfigurationErrors) {
  expect_error(ExitCode::kConfig, {"gpt needs tokens", "[8, 8, 1]"}, [] { Gpt(small_gpt(), {{8, 8, 1}, 10}); });
  expect_error(ExitCode::kConfig, {"model.heads: 3", "model.width: 8"}, [] {
    Gpt({.layers = 1, .heads = 3, .width = 8}, {{8}, 10});
  });
  expect_error(ExitCode::kConfig, {"convnet needs images", "[64]"}, [] { Convnet({}, {{64}, 10}); });
  expect_error(ExitCode::kConfig, {"too small", "[5, 5, 1]"}, [] { Convnet({}, {{5, 5, 1}, 10}); });
  Gpt model(small_gpt(), {{4}, 11});
  place_parameters(model, 1);
  EXPECT_THROW(model(tokens({1, 2, 3, 4, 5}, 1)), Error);
  expect_error(ExitCode::kBadData, {"index 11"}, [&] { model(tokens({1, 2, 11, 4}, 1)); });
}

// By hand: decoders on texts of 5 tokens of 11 kinds; the convnet of 28 x 28 images.
TEST(Flops, AreThoseOfAStepsMatrixProducts) {
  // 2 blocks of width 8: 64 x (3 + 1 + 4 + 4) = 768 elements of matrices each, and the head's 11 x 8; no positions,
  // norms or biases. Tokens see 1, 2, 3, 4 and 5 keys: 15 of 25.
  EXPECT_EQ(Gpt(small_gpt(), {{5}, 11}).flops(), 6.0 * 5 * (2 * 768 + 88) + 2.0 * 12 * 8 * 15);
  EXPECT_EQ(Gpt(small_gpt(), {{5}, 11}).flops(), 51600);
  // 2 blocks of width 16, 4 heads of 4 and 2 of keys: 256 + 2 x 128 + 256 of attention, 3 x 16 x 24 of the hidden layer
  // (1920), and the head's 11 x 16; the embedding's rows are looked up.
  LlamaOptions o = small_llama();
  EXPECT_EQ(Llama(o, {{5}, 11}).flops(), 6.0 * 5 * (2 * 1920 + 176) + 2.0 * 12 * 16 * 15);
  EXPECT_EQ(Llama(o, {{5}, 11}).flops(), 126240);
  o.tied = true;
  EXPECT_EQ(Llama(o, {{5}, 11}).flops(), 126240) << "the embedding is the head";
  o.window = 2;  // of both layers: 1 + 2 + 2 + 2 + 2 = 9 keys
  EXPECT_DOUBLE_EQ(Llama(o, {{5}, 11}).flops(), 6.0 * 5 * (2 * 1920 + 176) + 2.0 * 12 * 16 * 9);
  o.full_every = 2;  // 9 keys in the first layer, 15 in the second
  EXPECT_DOUBLE_EQ(Llama(o, {{5}, 11}).flops(), 6.0 * 5 * (2 * 1920 + 176) + 12.0 * 16 * (9 + 15));
  o.window = 8;  // wider than the text
  EXPECT_EQ(Llama(o, {{5}, 11}).flops(), 126240);
  EXPECT_EQ(Convnet({}, {{28, 28, 1}, 10}).flops(),
            2.0 * (2 * 676 * 9 * 32 + 3 * 576 * 9 * 32 * 64 + 3 * 9216 * 128 + 3 * 128 * 10));
  EXPECT_EQ(Mlp({}, {{6}, 3}).flops(), 0) << "not known";
}

}  // namespace
}  // namespace lockstep::module_test
