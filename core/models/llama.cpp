#include "core/models/llama.h"

#include <algorithm>
#include <cmath>

#include "core/base/partition.h"
#include "core/kernels/args.h"
#include "core/models/token_extents.h"
#include "core/nn/key_value_cache.h"
#include "core/ops/ops.h"

namespace lockstep {

std::vector<Field> fields(LlamaOptions& o) {
  std::vector<Field> out{
      field("layers", o.layers, "transformer blocks").with_range(1, 1000),
      field("heads", o.heads, "attention heads; must divide the width unless head_width is given").with_range(1, 1024),
      field("width", o.width, "features of a token").with_unit("features").with_range(1, 65536),
      field("kv_heads", o.kv_heads,
            "heads of keys and values, each shared by heads / kv_heads heads of queries; 0: as many as heads")
          .with_range(0, 1024),
      field("head_width", o.head_width, "features of a head, an even number; 0: width / heads")
          .with_unit("features")
          .with_range(0, 2 * RotaryArgs::kMostPairs),
      field("hidden", o.hidden,
            "features of the hidden layer of each block; 0: 8/3 of the width, rounded up to a multiple of 32")
          .with_unit("features")
          .with_range(0, 1 << 20),
      field("window", o.window, "tokens that a token attends to at most, itself among them; 0: all before it")
          .with_unit("tokens")
          .at_least(0),
      field("norm_eps", o.norm_eps, "added to the mean square in norms").with_range(0, 1),
      field("tied", o.tied, "the embedding is also the head"),
      field("qkv_bias", o.qkv_bias, "biases of queries, keys and values, as in Qwen2"),
      field("qk_norm", o.qk_norm, "norms of each head's queries and keys, as in Qwen3")};
  for (Field& f : fields(o.rope)) out.push_back(std::move(f));
  out.push_back(vocabulary_field(o.vocabulary));
  return out;
}

LlamaOptions LlamaOptions::resolved() const {
  LlamaOptions o = *this;
  require(head_width > 0 || width % heads == 0, ExitCode::kConfig, "model.heads: ", heads,
          " does not divide model.width: ", width);
  if (o.kv_heads == 0) o.kv_heads = heads;
  require(heads % o.kv_heads == 0, ExitCode::kConfig, "model.kv_heads: ", o.kv_heads,
          " does not divide model.heads: ", heads);
  if (o.head_width == 0) o.head_width = width / heads;
  const std::string key = head_width > 0 ? "model.head_width: " : str("model.heads: ", heads, " makes heads of width ");
  require(o.head_width % 2 == 0, ExitCode::kConfig, key, o.head_width, ", but rotary embeddings take an even one");
  require(o.head_width <= 2 * RotaryArgs::kMostPairs, ExitCode::kConfig, key, o.head_width,
          ", but rotary embeddings take at most ", 2 * RotaryArgs::kMostPairs);
  if (o.hidden == 0) o.hidden = round_up(ceil_div(8 * width, 3), 32);
  return o;
}

namespace {
Init llama_weights() { return Init::normal(0.02); }
// Each block adds two branches to the residual stream: scaled so that its variance does not grow with depth.
Init branch_end(const LlamaOptions& o) { return Init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(o.layers))); }
}  // namespace

LlamaAttention::LlamaAttention(const LlamaOptions& o)
    : heads_(o.heads),
      kv_heads_(o.kv_heads),
      head_width_(o.head_width),
      window_(o.window),
      frequencies_(rope_frequencies(o.rope, o.head_width)),
      norm_(child<RmsNorm>("norm", o.width, o.norm_eps)),
      q_(child<Linear>("q", o.width, o.heads * o.head_width, o.qkv_bias, llama_weights())),
      k_(child<Linear>("k", o.width, o.kv_heads * o.head_width, o.qkv_bias, llama_weights())),
      v_(child<Linear>("v", o.width, o.kv_heads * o.head_width, o.qkv_bias, llama_weights())),
      q_norm_(o.qk_norm ? &child<RmsNorm>("q_norm", o.head_width, o.norm_eps) : nullptr),
      k_norm_(o.qk_norm ? &child<RmsNorm>("k_norm", o.head_width, o.norm_eps) : nullptr),
      proj_(child<Linear>("proj", o.heads * o.head_width, o.width, false, branch_end(o))) {}

Tensor LlamaAttention::forward(const Tensor& x_BTC, const AttentionScope& scope) {
  const int64_t batch = x_BTC.dim(0), time = x_BTC.dim(1);
  const Tensor x = norm_(x_BTC);
  auto heads_of = [&](Linear& linear, int64_t heads, RmsNorm* norm) {
    const Tensor y = reshape(linear(x), {batch, time, heads, head_width_});
    return norm ? (*norm)(y) : y;
  };
  const Tensor starts = scope.cache ? scope.cache->starts() : Tensor();
  const Tensor q = rotary(heads_of(q_, heads_, q_norm_), frequencies_, starts);
  const Tensor k = rotary(heads_of(k_, kv_heads_, k_norm_), frequencies_, starts);
  const Tensor y = causal_attention_of(*this, q, k, heads_of(v_, kv_heads_, nullptr), scope, window_);
  return proj_(reshape(y, {batch, time, heads_ * head_width_}));
}

LlamaBlock::LlamaBlock(const LlamaOptions& o)
    : attention_(child<LlamaAttention>("attention", o)),
      norm_(child<RmsNorm>("norm", o.width, o.norm_eps)),
      gate_(child<Linear>("gate", o.width, o.hidden, false, llama_weights())),
      up_(child<Linear>("up", o.width, o.hidden, false, llama_weights())),
      down_(child<Linear>("down", o.hidden, o.width, false, branch_end(o))) {}

int LlamaBlock::recompute_attention(bool on) {
  attention_.set_recompute(on);
  return 1;
}

Tensor LlamaBlock::forward(const Tensor& x_BTC, const AttentionScope& scope) {
  const Tensor x = add(x_BTC, attention_(x_BTC, scope)), normed = norm_(x);
  return add(x, down_(silu_mul(gate_(normed), up_(normed))));
}

Llama::Llama(const LlamaOptions& options, const TaskSpec& task)
    : options_(options.resolved()),
      context_(task.input.rank() == 1 ? task.input[0] : 0),
      wte_(child<Embedding>("wte", vocabulary_of(options_.vocabulary, task), options_.width, llama_weights())) {
  require(task.input.rank() == 1, ExitCode::kConfig, "model.name: llama needs tokens, not samples of shape ",
          task.input);
  for (int64_t i = 0; i < options_.layers; ++i) blocks_.push_back(&child<LlamaBlock>(str("blocks.", i), options_));
  norm_ = &child<RmsNorm>("norm", options_.width, options_.norm_eps);
  if (!options_.tied) head_ = &child<Linear>("head", options_.width, wte_.weight().dim(0), false, llama_weights());
}

const Tensor* Llama::head() const {
  if (!head_) return &wte_.weight();
  return head_->has_adapter() ? nullptr : &head_->weight();
}

Tensor Llama::forward(const Tensor& tokens_BT, const AttentionScope& scope) {
  const Tensor h = features(tokens_BT, scope);
  return head_ ? (*head_)(h) : linear(h, wte_.weight());
}

Tensor Llama::features(const Tensor& tokens_BT, const AttentionScope& scope) {
  check(tokens_BT.rank() == 2 && tokens_BT.dim(1) <= context_, "llama: tokens ", tokens_BT, " for a context of ",
        context_);
  Tensor h = wte_(tokens_BT);
  for (LlamaBlock* block : blocks_) h = (*block)(h, scope);
  if (scope.cache) h = scope.cache->last_of(h);
  return (*norm_)(h);
}

double Llama::flops() const {
  int64_t n = head_ ? -wte_.weight().numel() : 0;
  for (const NamedParameter& p : parameters()) n += p.parameter->value.numel();
  const auto time = static_cast<double>(context_);
  const double window = options_.window > 0 ? std::min(static_cast<double>(options_.window), time) : time;
  const double keys = window - window * window / (2 * time);  // that a token sees, on average
  const auto features = static_cast<double>(options_.layers * options_.heads * options_.head_width);
  return time * (6 * static_cast<double>(n) + 12 * features * keys);
}

Choice<ModelKind> llama_choice() { return model_choice<Llama, LlamaOptions>("llama"); }

}  // namespace lockstep
