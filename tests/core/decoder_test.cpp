// Texts of language models: with a cache of keys and values they are what they are without, alone or beside others,
// whenever they come and whatever ends meanwhile.
#include "core/decode/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>

#include "core/device/allocator.h"
#include "core/device/context.h"
#include "core/models/bert.h"
#include "core/models/gpt.h"
#include "core/models/llama.h"
#include "core/nn/key_value_cache.h"

namespace lockstep::decoder_test {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kContext = 150, kClasses = 37;
const TaskSpec kTask{{kContext}, kClasses};

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
  if (name == "gpt") return placed(std::make_unique<Gpt>(GptOptions{.layers = 2, .heads = 2, .width = 24}, kTask));
  LlamaOptions o{.layers = 2, .heads = 4, .width = 32};
  if (name == "qwen") o.kv_heads = 2, o.qk_norm = true, o.qkv_bias = true;
  if (name == "olmo") o.qk_norm = o.qk_norm_whole = true, o.norms = BranchNorm::kAfter;
  if (name == "smollm")
    o.kv_heads = 2, o.no_rope_every = 2, o.window = 19, o.window_from = 1, o.proj_bias = o.mlp_bias = true;
  if (name == "phi") o.kv_heads = 2, o.fused = true;
  if (name == "gemma") {
    o.layers = 4, o.head_width = 12, o.window = 17, o.full_every = 3, o.window_theta = 500, o.attention_scale = 0.3;
    o.qk_norm = o.norms_from_one = o.scaled_embedding = o.tied = true;
    o.norms = BranchNorm::kBoth, o.gate = GateForm::kGelu;
  }
  if (name == "mistral") o.kv_heads = 1, o.window = 23;
  return placed(std::make_unique<Llama>(o, kTask));
}

TokenTransformer& transformer(Model& model) { return dynamic_cast<TokenTransformer&>(model); }

Tokens prompt_of(int64_t length, int32_t seed) {
  Tokens out;
  for (int64_t i = 0; i < length; ++i) out.push_back(static_cast<int32_t>((i * i + 5 * i + seed) % kClasses));
  return out;
}

struct Ended {
  Tokens tokens;
  Finish finish = Finish::kNone;
  friend bool operator==(const Ended&, const Ended&) = default;
};

// Steps until every text has ended; adds to `out`, by id.
void finish_all(Decoder& decoder, std::map<int64_t, Ended>& out) {
  do {
    for (const Decoded& d : decoder.step()) {
      if (d.token) out[d.id].tokens.push_back(*d.token);
      out[d.id].finish = d.finish;
    }
  } while (decoder.free_places() < decoder.places());
}

std::vector<Tokens> continued(Model& model, const std::vector<Tokens>& prompts, const DecodeRequest& like,
                              bool cache = true) {
  Decoder decoder(model, kTask, {.places = static_cast<int64_t>(prompts.size()), .cache = cache});
  for (const Tokens& prompt : prompts) {
    DecodeRequest request = like;
    request.prompt = prompt, request.slides = true;
    decoder.admit(request);
  }
  std::map<int64_t, Ended> ended;
  finish_all(decoder, ended);
  std::vector<Tokens> out;
  for (const auto& [_, each] : ended) out.push_back(each.tokens);
  return out;
}

Ended alone(Model& model, const DecodeRequest& request, const DecoderOptions& options = {}) {
  Decoder decoder(model, kTask, options);
  std::map<int64_t, Ended> ended;
  decoder.admit(request);
  finish_all(decoder, ended);
  return ended[0];
}

// Prompts shorter and longer than a tile of queries, one that reaches the end of the context, one beyond it.
const std::vector<Tokens> kPrompts{prompt_of(3, 1), prompt_of(64, 2), prompt_of(90, 3), prompt_of(147, 4)};

class Generation : public ::testing::TestWithParam<std::string> {};

TEST_P(Generation, ACacheChangesNothing) {
  const auto model = model_named(GetParam());
  for (const double temperature : {0.0, 1.0}) {
    const DecodeRequest r{.prompt = {}, .tokens = 30, .sampling = {.temperature = temperature}};
    const auto cached = continued(*model, kPrompts, r);
    EXPECT_EQ(cached, continued(*model, kPrompts, r, /*cache=*/false)) << "temperature " << temperature;
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
  const DecodeRequest r{.prompt = {}, .tokens = 30, .sampling = {.temperature = 0}};
  EXPECT_EQ(continued(*model, kPrompts, r), continued(*model, kPrompts, r, /*cache=*/false));
}

TEST_P(Generation, DoesNotDependOnTheOthersNorOnThreads) {
  const auto model = model_named(GetParam());
  const DecodeRequest r{.prompt = {}, .tokens = 20, .sampling = {.temperature = 1}};
  const auto together = continued(*model, kPrompts, r);
  Stream stream(Device{}, Stream::Mode::kInline, 3);
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    EXPECT_EQ(continued(*model, {kPrompts[i]}, r)[0], together[i]) << "prompt " << i;
    const WithStream with(stream);
    EXPECT_EQ(continued(*model, {kPrompts[i]}, r)[0], together[i]) << "prompt " << i << " on three threads";
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
    EXPECT_EQ(cache.begins(), done == 0);
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

// Requests of every kind, each with a seed of its own.
std::vector<DecodeRequest> requests() {
  std::vector<DecodeRequest> out;
  for (int i = 0; i < 8; ++i) {
    DecodeRequest r{.prompt = prompt_of(3 + i * i * 2, i), .tokens = 9 + 5 * (i % 3)};
    r.sampling = {.temperature = i % 4 == 3 ? 0 : 1.0, .top_k = i % 3 * 9, .seed = static_cast<uint64_t>(100 + i)};
    if (i % 2) r.sampling.repetition_penalty = 1.5, r.sampling.top_p = 0.9;
    out.push_back(r);
  }
  return out;
}

// Eight texts in three places: they come one by one and two at a time, some are cancelled, and places are used again.
TEST_P(Generation, ATextIsTheSameWheneverItIsAdmitted) {
  const auto model = model_named(GetParam());
  const auto all = requests();
  for (const bool cache : {true, false}) {
    Decoder decoder(*model, kTask, {.places = 3, .place_tokens = 120, .cache = cache});
    std::map<int64_t, Ended> ended;
    size_t next = 0;
    for (int64_t n = 0; next < all.size() || decoder.free_places() < decoder.places(); ++n) {
      for (int64_t come = n % 3; come > 0 && next < all.size() && decoder.free_places() > 0; --come, ++next)
        EXPECT_EQ(decoder.admit(all[next]), static_cast<int64_t>(next));
      for (const Decoded& d : decoder.step()) {
        if (d.token) ended[d.id].tokens.push_back(*d.token);
        ended[d.id].finish = d.finish;
        const bool cancels = d.token && d.id % 4 == 2 && ended[d.id].tokens.size() == 6;
        EXPECT_EQ(cancels && decoder.cancel(d.id), cancels);
      }
    }
    finish_all(decoder, ended);  // says what was cancelled last
    ASSERT_EQ(ended.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      Ended wanted = alone(*model, all[i]);
      EXPECT_EQ(wanted.finish, Finish::kLength);
      if (i % 4 == 2) wanted.tokens.resize(6), wanted.finish = Finish::kCancelled;
      EXPECT_EQ(ended[static_cast<int64_t>(i)], wanted) << "text " << i << ", cache " << cache;
    }
  }
}

TEST_P(Generation, ATextSlidesOutOfItsPlace) {
  const auto model = model_named(GetParam());
  DecodeRequest r{.prompt = prompt_of(20, 1), .tokens = 145, .sampling = {.temperature = 1}, .slides = true};
  const Ended whole = alone(*model, r, {.cache = false});
  EXPECT_EQ(whole.tokens.size(), 145U);
  EXPECT_EQ(alone(*model, r, {.place_tokens = 30}), whole);
  EXPECT_EQ(alone(*model, r, {.place_tokens = 10}), whole) << "a prompt without a place in the cache";
  r.slides = false;
  const Ended ended = alone(*model, r, {.place_tokens = 30});
  EXPECT_EQ(ended.tokens, Tokens(whole.tokens.begin(), whole.tokens.begin() + 11)) << "30 tokens, and what follows";
  EXPECT_EQ(ended.finish, Finish::kLength);
  EXPECT_EQ(alone(*model, r).tokens.size(), 131U) << "the model's context, and what follows";
}

INSTANTIATE_TEST_SUITE_P(Models, Generation,
                         ::testing::Values("gpt", "llama", "qwen", "mistral", "olmo", "smollm", "phi", "gemma"));

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

Tokens drawn_by(std::vector<float> logits, DecodeRequest request) {
  const TaskSpec task{{4}, static_cast<int64_t>(logits.size())};
  Constant model(std::move(logits));
  model.eval();
  Decoder decoder(model, task);
  request.slides = true;
  decoder.admit(request);
  std::map<int64_t, Ended> ended;
  finish_all(decoder, ended);
  return ended[0].tokens;
}

std::map<int32_t, int64_t> drawn(const std::vector<float>& logits, const Sampling& sampling) {
  std::map<int32_t, int64_t> count;
  for (const int32_t token : drawn_by(logits, {.prompt = {0}, .tokens = 2000, .sampling = sampling})) ++count[token];
  return count;
}

float log_of_part(double p) { return static_cast<float>(std::log(p)); }

// What texts get: tokens and log-probabilities, with each prompt's own.
struct Scored {
  Tokens tokens;
  std::vector<LogProbs> prompt, added;
};
std::vector<Scored> scored(Model& model, const DecodeRequest& like, const DecoderOptions& options) {
  Decoder decoder(model, kTask, options);
  std::vector<Scored> out(kPrompts.size());
  for (const Tokens& prompt : kPrompts) {
    DecodeRequest request = like;
    request.prompt = prompt, request.slides = true;
    decoder.admit(request);
  }
  do {
    for (const Decoded& d : decoder.step()) {
      Scored& s = out[static_cast<size_t>(d.id)];
      if (!d.prompt.empty()) s.prompt = d.prompt;
      if (d.token) s.tokens.push_back(*d.token);
      if (d.log_probs) s.added.push_back(*d.log_probs);
    }
  } while (decoder.free_places() < decoder.places());
  return out;
}

// log softmax of a row of logits, in the plain way.
std::vector<long double> plain_log_probs(const std::vector<double>& logits, size_t row) {
  const double* x = logits.data() + row * kClasses;
  long double sum = 0;
  for (int64_t i = 0; i < kClasses; ++i) sum += std::exp(static_cast<long double>(x[i]));
  std::vector<long double> out;
  for (int64_t i = 0; i < kClasses; ++i) out.push_back(static_cast<long double>(x[i]) - std::log(sum));
  return out;
}

void expect_log_probs(const LogProbs& found, const std::vector<long double>& all, int32_t token) {
  EXPECT_EQ(found.chosen.token, token);
  EXPECT_NEAR(found.chosen.log_prob, static_cast<double>(all[static_cast<size_t>(token)]), 1e-12);
  ASSERT_EQ(found.likeliest.size(), 3u);
  std::vector<long double> sorted = all;
  std::sort(sorted.rbegin(), sorted.rend());
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_NEAR(found.likeliest[k].log_prob, static_cast<double>(sorted[k]), 1e-12);
    EXPECT_EQ(all[static_cast<size_t>(found.likeliest[k].token)], sorted[k]);
  }
}

TEST_P(Generation, LogProbabilitiesAreThoseOfAPassOverTheText) {
  const auto model = model_named(GetParam());
  const DecodeRequest r{
      .prompt = {}, .tokens = 3, .sampling = {.temperature = 2}, .log_probs = 3, .prompt_log_probs = true};
  const auto found = scored(*model, r, {.places = 4});
  NoGrad no_grad;
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    Tokens text = kPrompts[i];
    text.insert(text.end(), found[i].tokens.begin(), found[i].tokens.end());
    const auto inputs = static_cast<int64_t>(text.size()) - 1;
    const std::vector<double> logits =
        (*model)(Tensor::of(Tokens(text.begin(), text.end() - 1), {1, inputs})).to_vector();
    ASSERT_EQ(found[i].prompt.size(), kPrompts[i].size() - 1);
    ASSERT_EQ(found[i].added.size(), 3u);
    for (size_t t = 0; t + 1 < text.size(); ++t) {
      const bool given = t + 1 < kPrompts[i].size();
      expect_log_probs(given ? found[i].prompt[t] : found[i].added[t + 1 - kPrompts[i].size()],
                       plain_log_probs(logits, t), text[t + 1]);
    }
  }
}

TEST_P(Generation, PromptsReadInChunksGiveTheSameBits) {
  const auto model = model_named(GetParam());
  const DecodeRequest r{.prompt = {}, .tokens = 12, .sampling = {.temperature = 1}, .log_probs = 2};
  const auto bits = [&](const DecoderOptions& options) {
    std::vector<std::pair<Tokens, std::vector<double>>> out;
    for (const Scored& s : scored(*model, r, options)) {
      out.emplace_back(s.tokens, std::vector<double>{});
      for (const LogProbs& each : s.added) {
        out.back().second.push_back(each.chosen.log_prob);
        for (const TokenLogProb& other : each.likeliest) out.back().second.push_back(other.log_prob);
      }
    }
    return out;
  };
  const auto whole = bits({.places = 4});
  for (const int64_t chunk : {1, 7, 64, 100}) EXPECT_EQ(bits({.places = 4, .prompt_chunk = chunk}), whole) << chunk;
  EXPECT_EQ(bits({.places = 4, .cache = false}), whole);
}

TEST(DecoderTest, AShortTextGoesOnWhileALongPromptIsRead) {
  const auto model = model_named("gpt");
  Decoder decoder(*model, kTask, {.places = 2, .prompt_chunk = 10});
  decoder.admit({.prompt = prompt_of(95, 1), .tokens = 2});
  decoder.admit({.prompt = prompt_of(5, 2), .tokens = 20});
  std::vector<int64_t> long_text;
  for (int64_t step = 1; step <= 11; ++step) {
    for (const Decoded& d : decoder.step())
      if (d.id == 0) long_text.push_back(step);
  }
  EXPECT_EQ(long_text, (std::vector<int64_t>{10, 11}));  // 95 tokens in chunks of 10
}

TEST(DecoderTest, APromptAloneIsScored) {
  const auto model = model_named("gpt");
  Decoder decoder(*model, kTask, {.places = 2});
  decoder.admit({.prompt = prompt_of(150, 1), .tokens = 0, .log_probs = 0, .prompt_log_probs = true});
  const auto out = decoder.step();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_FALSE(out[0].token);
  EXPECT_EQ(out[0].finish, Finish::kLength);
  EXPECT_EQ(out[0].prompt.size(), 149u);
  EXPECT_EQ(decoder.free_places(), 2);
}

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
  EXPECT_EQ(drawn_by({2, 1.5F, -1, -1.2F},
                     {.prompt = {3}, .tokens = 4, .sampling = {.temperature = 0, .repetition_penalty = 10}}),
            (Tokens{0, 1, 0, 0}))
      << "2, then 1.5, then the larger of 0.2, 0.15, -1 and -12";
}

// As transformers continues a text: with the short factors up to 60 tokens, and from the 61st on with the long ones for
// all of it, whose keys are no longer those of the cache.
TEST(DecoderTest, ATextHasTheFrequenciesOfItsLength) {
  constexpr int64_t kShort = 60;
  LlamaOptions o{.layers = 2, .heads = 4, .width = 32};
  o.fused = true;
  o.rope.scaling = RopeScaling::kLongrope, o.rope.context = kShort;
  o.rope.short_factors = {1, 1.1, 1.4, 2}, o.rope.long_factors = {1.5, 4, 9, 20};
  const auto of_short = placed(std::make_unique<Llama>(o, TaskSpec{{kShort}, kClasses})),
             of_long = placed(std::make_unique<Llama>(o, kTask));
  o.rope.by_length = true;
  const auto model = placed(std::make_unique<Llama>(o, kTask));
  EXPECT_EQ(transformer(*model).cached_tokens(), kShort);
  DecodeRequest request{.prompt = {}, .tokens = 12};
  request.sampling.temperature = 0;
  const std::vector<Tokens> prompts{prompt_of(3, 1), prompt_of(kShort - 4, 2), prompt_of(kShort, 3), prompt_of(80, 4)};
  const std::vector<Tokens> found = continued(*model, prompts, request);
  EXPECT_EQ(continued(*model, prompts, request, false), found);
  const NoGrad no_grad;
  for (size_t p = 0; p < prompts.size(); ++p) {
    Tokens text = prompts[p];
    for (int64_t i = 0; i < request.tokens; ++i) {
      const auto time = static_cast<int64_t>(text.size());
      Model& right = time > kShort ? *of_long : *of_short;
      const Tensor logits = transformer(right)(Tensor::of(text, {1, time}));
      const float* last = logits.values<float>() + (time - 1) * kClasses;
      text.push_back(static_cast<int32_t>(std::max_element(last, last + kClasses) - last));
    }
    EXPECT_EQ(found[p], Tokens(text.end() - request.tokens, text.end())) << "prompt " << p;
  }
}

TEST(DecoderTest, CancelFreesThePlaceAtOnce) {
  const auto model = model_named("gpt");
  const auto all = requests();
  Decoder decoder(*model, kTask, {.places = 2});
  std::map<int64_t, Ended> ended;
  decoder.admit(all[0]), decoder.admit(all[1]);
  for (const Decoded& d : decoder.step()) ended[d.id].tokens.push_back(*d.token);
  EXPECT_EQ(decoder.free_places(), 0);
  EXPECT_TRUE(decoder.cancel(0));
  EXPECT_FALSE(decoder.cancel(0)) << "it is gone";
  EXPECT_FALSE(decoder.cancel(7)) << "no such text";
  EXPECT_EQ(decoder.free_places(), 1);
  EXPECT_EQ(decoder.admit(all[2]), 2) << "in the place that is free, before the next step";
  finish_all(decoder, ended);
  EXPECT_EQ(ended[0].finish, Finish::kCancelled);
  EXPECT_EQ(ended[0].tokens.size(), 1U);
  EXPECT_EQ(ended[1], alone(*model, all[1]));
  EXPECT_EQ(ended[2], alone(*model, all[2]));
  EXPECT_TRUE(decoder.step().empty()) << "each end is said once";
}

TEST(DecoderTest, SaysWhyATextEnded) {
  const auto model = model_named("gpt");
  DecodeRequest r{.prompt = prompt_of(5, 3), .tokens = 12, .sampling = {.temperature = 1}};
  const Ended whole = alone(*model, r);
  EXPECT_EQ(whole.tokens.size(), 12U);
  EXPECT_STREQ(to_text(whole.finish), "length");
  const auto first = [&](int64_t n) { return Tokens(whole.tokens.begin(), whole.tokens.begin() + n); };
  const auto place_of = [&](int32_t token) {
    return std::find(whole.tokens.begin(), whole.tokens.end(), token) - whole.tokens.begin();
  };
  r.ends = {whole.tokens[7]};
  EXPECT_EQ(alone(*model, r), (Ended{first(place_of(whole.tokens[7])), Finish::kEnd})) << "before the token";
  r.ends = {};
  r.stops = {{whole.tokens[5], whole.tokens[6], whole.tokens[7]}};
  EXPECT_EQ(alone(*model, r), (Ended{first(8), Finish::kStop})) << "behind the tokens";
  r.stops = {{r.prompt.back(), whole.tokens[0]}};
  EXPECT_EQ(alone(*model, r), whole) << "tokens of the prompt are no part of a stop";
  r.stops = {{whole.tokens[10], whole.tokens[11]}};
  EXPECT_EQ(alone(*model, r), (Ended{whole.tokens, Finish::kStop})) << "the stop rather than the length";
  EXPECT_STREQ(to_text(Finish::kCancelled), "cancelled");
}

TEST(DecoderTest, RefusesWhatItCannotContinue) {
  const auto model = model_named("gpt");
  Decoder decoder(*model, kTask, {.places = 2, .place_tokens = 40});
  const auto refused = [&](const std::function<void(DecodeRequest&)>& change, const std::string& said) {
    DecodeRequest r{.prompt = prompt_of(5, 3), .tokens = 3};
    change(r);
    try {
      decoder.admit(r);
      ADD_FAILURE() << "admitted: " << said;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage);
      EXPECT_NE(std::string(e.what()).find(said), std::string::npos) << e.what();
    }
  };
  refused([](auto& r) { r.prompt = prompt_of(41, 1); }, "the prompt has 41 tokens, a place room for 40");
  refused([](auto& r) { r.prompt.clear(); }, "the prompt has no tokens");
  refused([](auto& r) { r.prompt[2] = kClasses; }, "the prompt has the token 37; the model's are 0 to 36");
  refused([](auto& r) { r.prompt[2] = -1; }, "the prompt has the token -1");
  refused([](auto& r) { r.tokens = 0; }, "tokens 0: must be 1 or more");
  refused([](auto& r) { r.stops = {{1}, {}}; }, "one of stops has no tokens");
  refused([](auto& r) { r.sampling.temperature = -1; }, "temperature -1: must be 0 or more");
  refused([](auto& r) { r.sampling.top_k = -1; }, "top_k -1: must be 0 or more");
  refused([](auto& r) { r.sampling.top_p = std::nan(""); }, "must be in [0, 1]");
  refused([](auto& r) { r.sampling.min_p = 1.5; }, "min_p 1.5: must be in [0, 1]");
  refused([](auto& r) { r.sampling.repetition_penalty = 0; }, "repetition_penalty 0: must be");
  EXPECT_EQ(decoder.free_places(), 2) << "what is refused takes no place";
  EXPECT_EQ(decoder.admit({.prompt = prompt_of(40, 1)}), 0);
  EXPECT_EQ(decoder.admit({.prompt = prompt_of(60, 1), .slides = true}), 1);
  refused([](auto&) {}, "all 2 places are taken");

  const auto refuses = [&](Model& m, const TaskSpec& task, const DecoderOptions& o, ExitCode code) {
    try {
      Decoder other(m, task, o);
      ADD_FAILURE() << "made";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
    }
  };
  refuses(*model, kTask, {.places = 0}, ExitCode::kUsage);
  refuses(*model, kTask, {.place_tokens = -1}, ExitCode::kUsage);
  refuses(*model, {{8, 8, 1}, 10}, {}, ExitCode::kUsage);
  Bert bert(BertOptions{.layers = 1, .heads = 2, .width = 8}, kTask);
  bert.eval();
  refuses(bert, kTask, {}, ExitCode::kUsage);
  model->train();
  refuses(*model, kTask, {}, ExitCode::kInternal);
}

TEST(DecoderTest, MemoryDoesNotGrow) {
  const auto model = model_named("llama");
  Decoder decoder(*model, kTask, {.places = 4, .place_tokens = 48});
  int64_t admitted = 0;
  const auto until = [&](int64_t count) {
    while (admitted < count) {
      for (; decoder.free_places() > 0; ++admitted)
        decoder.admit({.prompt = prompt_of(1 + admitted % 10 * 5, 1), .tokens = 1 + admitted % 5, .slides = true});
      decoder.step();
      decoder.cancel(admitted - 1 - admitted % 3);
    }
    for (int64_t id = 0; id < admitted; ++id) decoder.cancel(id);
    decoder.step();
    return allocator_stats();
  };
  const AllocatorStats before = until(200);
  const AllocatorStats after = until(1400);
  EXPECT_EQ(after.bytes_in_use, before.bytes_in_use);
  EXPECT_EQ(after.bytes_reserved, before.bytes_reserved);
}

// Shapes of its passes.
class Watched : public Gpt {
 public:
  using Gpt::forward;
  using Gpt::Gpt;
  Tensor forward(const Tensor& x, const AttentionScope& scope) override {
    if (fails_after-- == 0) throw std::runtime_error("the pass failed");
    passes.push_back(x.shape());
    return Gpt::forward(x, scope);
  }
  std::vector<Shape> passes;
  int64_t fails_after = -1;
};

std::unique_ptr<Watched> watched() {
  auto model = std::make_unique<Watched>(GptOptions{.layers = 2, .heads = 2, .width = 24}, kTask);
  place_parameters(*model, 3);
  model->eval();
  return model;
}

TEST(DecoderTest, ComputesNewTokensOfTextsThatGoOnAlone) {
  const auto model = watched();
  Decoder decoder(*model, kTask, {.places = 5});
  const auto step = [&] {
    model->passes.clear();
    decoder.step();
    return model->passes;
  };
  for (const int64_t size : {9, 10, 11}) decoder.admit({.prompt = prompt_of(size, 1)});
  EXPECT_EQ(step(), (std::vector<Shape>{{3, 11}})) << "prompts of like length in one pass";
  EXPECT_EQ(step(), (std::vector<Shape>{{3, 1}}));
  decoder.admit({.prompt = prompt_of(140, 1), .tokens = 1});
  EXPECT_EQ(step(), (std::vector<Shape>{{3, 1}, {1, 140}})) << "no padding to a long prompt";
  EXPECT_EQ(decoder.free_places(), 2);
  decoder.cancel(0);
  EXPECT_EQ(step(), (std::vector<Shape>{{2, 1}})) << "nothing of a place that is free";
}

TEST(DecoderTest, AStepThatFailsChangesNothing) {
  const auto model = watched();
  std::vector<Ended> wanted;
  const auto all = requests();
  for (const DecodeRequest& r : all) wanted.push_back(alone(*model, r));
  for (const int64_t passes : {0, 1, 2}) {
    Decoder decoder(*model, kTask, {.places = 4});
    std::map<int64_t, Ended> ended;
    decoder.admit(all[0]), decoder.admit(all[1]);
    for (const Decoded& d : decoder.step()) ended[d.id].tokens.push_back(*d.token);
    decoder.admit(all[5]), decoder.admit(all[7]);  // prompts of lengths so different that they take passes of their own
    decoder.cancel(1);
    model->fails_after = passes;
    EXPECT_THROW(decoder.step(), std::runtime_error);
    EXPECT_EQ(decoder.free_places(), 1);
    finish_all(decoder, ended);
    EXPECT_EQ(ended[0], wanted[0]) << "after " << passes << " passes";
    EXPECT_EQ(ended[1].finish, Finish::kCancelled);
    EXPECT_EQ(ended[2], wanted[5]);
    EXPECT_EQ(ended[3], wanted[7]);
  }
}

}  // namespace
}  // namespace lockstep::decoder_test
