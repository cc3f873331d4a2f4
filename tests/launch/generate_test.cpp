// Texts of language models: with a cache of keys and values they are what they are without, alone or beside others.
#include "launch/training/generate.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <stdexcept>

#include "core/device/context.h"
#include "core/models/gpt.h"
#include "core/models/llama.h"
#include "core/nn/key_value_cache.h"

namespace lockstep {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kContext = 150, kClasses = 37;

// Random weights, large enough that the likeliest tokens differ from place to place.
std::unique_ptr<Model> placed(std::unique_ptr<Model> model) {
  place_parameters(*model, 3);
  for (auto& p : model->parameters()) {
    const Tensor& value = p.parameter->value;
    if (value.rank() == 2)
      for (int64_t i = 0; i < value.numel(); ++i) static_cast<float*>(value.write())[i] *= 6;
  }
  model->eval();
  return model;
}

std::unique_ptr<Model> model_named(const std::string& name) {
  const TaskSpec task{{kContext}, kClasses};
  if (name == "gpt") return placed(std::make_unique<Gpt>(GptOptions{.layers = 2, .heads = 2, .width = 24}, task));
  LlamaOptions o{.layers = 2, .heads = 4, .width = 32};
  if (name == "qwen") o.kv_heads = 2, o.qk_norm = true, o.qkv_bias = true;
  if (name == "mistral") o.kv_heads = 1, o.window = 23;
  return placed(std::make_unique<Llama>(o, task));
}

TokenTransformer& transformer(Model& model) { return dynamic_cast<TokenTransformer&>(model); }

Tokens prompt_of(int64_t length, int32_t seed) {
  Tokens out;
  for (int64_t i = 0; i < length; ++i) out.push_back(static_cast<int32_t>((i * i + 5 * i + seed) % kClasses));
  return out;
}

std::vector<Tokens> continued(Model& model, const std::vector<Tokens>& prompts, const GenerateOptions& options) {
  std::vector<Tokens> out(prompts.size());
  generate(model, prompts, kContext, options, [&](size_t i, int32_t token) {
    out[i].push_back(token);
    return true;
  });
  return out;
}

// Prompts shorter and longer than a tile of queries, one that reaches the end of the context, one beyond it.
const std::vector<Tokens> kPrompts{prompt_of(3, 1), prompt_of(64, 2), prompt_of(90, 3), prompt_of(147, 4)};

class Generation : public ::testing::TestWithParam<std::string> {};

TEST_P(Generation, ACacheChangesNothing) {
  const auto model = model_named(GetParam());
  for (const double temperature : {0.0, 1.0}) {
    GenerateOptions o{.tokens = 30, .temperature = temperature};
    const auto cached = continued(*model, kPrompts, o);
    o.cache = false;
    EXPECT_EQ(cached, continued(*model, kPrompts, o)) << "temperature " << temperature;
    EXPECT_NE(cached[0], cached[1]);
  }
}

TEST_P(Generation, ComputesInThePrecisionThatIsAsked) {
  const auto model = model_named(GetParam());
  const Tensor input = Tensor::of(kPrompts[1], {1, 64});
  NoGrad no_grad;
  const std::vector<double> wide = (*model)(input).to_vector();
  compute_in(*model, DType::kFloat32);
  EXPECT_EQ((*model)(input).to_vector(), wide);
  compute_in(*model, DType::kBFloat16);
  const Tensor logits = (*model)(input);
  EXPECT_EQ(logits.dtype(), DType::kBFloat16);
  EXPECT_NE(logits.to_vector(), wide);
  GenerateOptions o{.tokens = 30, .temperature = 0};
  const auto with_cache = continued(*model, kPrompts, o);
  o.cache = false;
  EXPECT_EQ(continued(*model, kPrompts, o), with_cache);
}

TEST_P(Generation, DoesNotDependOnTheOthersNorOnThreads) {
  const auto model = model_named(GetParam());
  const GenerateOptions o{.tokens = 20, .temperature = 1};
  const auto together = continued(*model, kPrompts, o);
  Stream stream(Device{}, Stream::Mode::kInline, 3);
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    EXPECT_EQ(continued(*model, {kPrompts[i]}, o)[0], together[i]) << "prompt " << i;
    const WithStream with(stream);
    EXPECT_EQ(continued(*model, {kPrompts[i]}, o)[0], together[i]) << "prompt " << i << " on three threads";
  }
}

// Logits of the last token, to the bit, token by token after a prompt.
TEST_P(Generation, LogitsOfACacheHaveTheBitsOfAWholePass) {
  const auto model = model_named(GetParam());
  const NoGrad no_grad;
  const Tokens all = prompt_of(kContext, 7);
  KeyValueCache cache(1, kContext);
  for (int64_t done = 0, count = 61; done < kContext; done += count, count = 1) {
    const auto pass = [&](int64_t from, const AttentionScope& scope) {
      const Tokens tokens(all.begin() + from, all.begin() + done + count);
      const Tensor y = transformer(*model)(Tensor::of(tokens, {1, static_cast<int64_t>(tokens.size())}), scope);
      return y.slice(1, y.dim(1) - 1, y.dim(1)).to_vector();
    };
    const auto whole = pass(0, {});
    const CachedPass cached(cache, {count});
    ASSERT_EQ(pass(done, cached.scope()), whole) << "after " << done << " tokens";
  }
  EXPECT_EQ(cache.lengths()[0], kContext);
  EXPECT_THROW(CachedPass(cache, {1}), Error);
}

// A pass that fails in the middle, and one that is done before another failed.
TEST_P(Generation, ACacheKeepsNothingOfAPassThatFailed) {
  const auto model = model_named(GetParam());
  const NoGrad no_grad;
  const Tokens prompt = prompt_of(5, 7);
  KeyValueCache cache(1, kContext);
  const auto pass = [&](bool fails) {
    const CachedPass cached(cache, {5});
    const Tensor y = transformer(*model)(Tensor::of(prompt, {1, 5}), cached.scope());
    if (fails) throw std::runtime_error("the pass failed");
    return y.to_vector();
  };
  EXPECT_THROW(pass(true), std::runtime_error);
  EXPECT_EQ(cache.lengths()[0], 0);
  struct AtUnwinding {
    std::function<void()> work;
    ~AtUnwinding() { work(); }
  };
  EXPECT_THROW(
      {
        const AtUnwinding whole{[&] { pass(false); }};
        throw std::runtime_error("another failed");
      },
      std::runtime_error);
  EXPECT_EQ(cache.lengths()[0], 5) << "a pass during unwinding that did not fail itself";
}

TEST_P(Generation, ACacheAndDocumentsTogetherAreRefused) {
  const auto model = model_named(GetParam());
  const Tensor one = Tensor::zeros({1, 5}, DType::kInt32), tokens = Tensor::of(prompt_of(5, 7), {1, 5});
  KeyValueCache cache(1, kContext);
  try {
    const CachedPass cached(cache, {5});
    transformer (*model)(tokens, {.documents = one, .positions = one, .cache = &cache});
    FAIL() << "documents and a cache";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInternal);
    EXPECT_NE(std::string(e.what()).find("a pass with documents"), std::string::npos) << e.what();
  }
  EXPECT_EQ(cache.lengths()[0], 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Generation, ::testing::Values("gpt", "llama", "qwen", "mistral"));

// Says the same logits everywhere.
class Constant : public Model {
 public:
  explicit Constant(std::vector<float> logits) : logits_(std::move(logits)) {}
  Tensor forward(const Tensor& x) override {
    std::vector<float> out;
    for (int64_t i = 0; i < x.numel(); ++i) out.insert(out.end(), logits_.begin(), logits_.end());
    return Tensor::of(out, {x.dim(0), x.dim(1), static_cast<int64_t>(logits_.size())});
  }

 private:
  std::vector<float> logits_;
};

std::map<int32_t, int64_t> drawn(std::vector<float> logits, GenerateOptions o) {
  Constant model(std::move(logits));
  o.tokens = 2000;
  std::map<int32_t, int64_t> count;
  generate(model, {{0}}, 4, o, [&](size_t, int32_t token) {
    ++count[token];
    return true;
  });
  return count;
}

float log_of_part(double p) { return static_cast<float>(std::log(p)); }

TEST(Sampling, FollowsProbabilitiesAndTheirLimits) {
  const std::vector<float> logits{log_of_part(0.1), log_of_part(0.5), log_of_part(0.1), log_of_part(0.3)};
  auto n = drawn(logits, {.temperature = 1});
  EXPECT_NEAR(n[1], 1000, 100);
  EXPECT_NEAR(n[3], 600, 90);
  EXPECT_NEAR(n[0], 200, 60);
  n = drawn(logits, {.temperature = 1, .top_k = 2});
  EXPECT_EQ(n[1] + n[3], 2000);
  EXPECT_NEAR(n[1], 1250, 100);
  n = drawn(logits, {.temperature = 1, .top_p = 0.85});  // of two equal ones the lower id
  EXPECT_EQ(n[1] + n[3] + n[0], 2000);
  EXPECT_GT(n[0], 0);
  n = drawn(logits, {.temperature = 1, .min_p = 0.5});
  EXPECT_EQ(n[1] + n[3], 2000);
  n = drawn(logits, {.temperature = 1, .top_p = 0});
  EXPECT_EQ(n[1], 2000);
  n = drawn({1, 2, 2, 0}, {.temperature = 0});
  EXPECT_EQ(n[1], 2000) << "the lower id of two equal logits";
}

TEST(Sampling, APenaltyLowersWhatTheTextHas) {
  Constant model({2, 1.5F, -1, -1.2F});
  Tokens out;
  generate(model, {{3}}, 4, {.tokens = 4, .temperature = 0, .repetition_penalty = 10}, [&](size_t, int32_t token) {
    out.push_back(token);
    return true;
  });
  EXPECT_EQ(out, (Tokens{0, 1, 0, 0})) << "2, then 1.5, then the larger of 0.2, 0.15, -1 and -12";
}

TEST(Generate, EndsASequenceWhereTheCallerSaysSo) {
  const auto model = model_named("gpt");
  std::vector<int64_t> count(kPrompts.size());
  generate(*model, kPrompts, kContext, {.tokens = 12},
           [&](size_t i, int32_t) { return ++count[i] < static_cast<int64_t>(3 * i + 1); });
  EXPECT_EQ(count, (std::vector<int64_t>{1, 4, 7, 10}));
}

}  // namespace
}  // namespace lockstep
