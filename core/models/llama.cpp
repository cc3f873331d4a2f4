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
      field("window_from", o.window_from, "the first layer, from 0, that has the window; those before it attend to all")
          .with_unit("layers")
          .with_range(0, 1000)
          .without_effect_at_default(),
      field("full_every", o.full_every, "each layer of this number, counted from 1, has no window; 0: all have it")
          .with_unit("layers")
          .with_range(0, 1000)
          .without_effect_at_default(),
      field("no_rope_every", o.no_rope_every,
            "each layer of this number, counted from 1, has no rotary embedding, as in SmolLM3 (4); 0: all have it")
          .with_unit("layers")
          .with_range(0, 1000)
          .without_effect_at_default(),
      field("norm_eps", o.norm_eps, "added to the mean square in norms").with_range(0, 1),
      field("tied", o.tied, "the embedding is also the head"),
      field("qkv_bias", o.qkv_bias, "biases of queries, keys and values, as in Qwen2"),
      field("qk_norm", o.qk_norm, "norms of each head's queries and keys, as in Qwen3"),
      field("qk_norm_whole", o.qk_norm_whole, "these norms are over all heads together, as in OLMo 2")
          .without_effect_at_default(),
      field("proj_bias", o.proj_bias, "a bias where the heads come together").without_effect_at_default(),
      field("mlp_bias", o.mlp_bias, "biases of the hidden layer").without_effect_at_default(),
      field("fused", o.fused,
            "queries, keys and values are one layer (qkv), and gate and up one (gate_up), as in Phi-3")
          .without_effect_at_default(),
      field("fused_by_head", o.fused_by_head,
            "in that layer queries, keys and values of a head follow each other, as in GPT-NeoX")
          .without_effect_at_default(),
      field("gated", o.gated, "hidden layers are down(gate(x) * up(x)); false: down(up(x)), as in GPT-NeoX")
          .without_effect_at_default(),
      field("parallel", o.parallel, "attention and hidden layer of a block stand side by side, as in GPT-NeoX")
          .without_effect_at_default(),
      enum_field("norm", o.norm, {{"rms", NormForm::kRms}, {"layer", NormForm::kLayer}},
                 "the form of norms: by the root of the mean square, or layer norms with biases, as in GPT-NeoX")
          .without_effect_at_default(),
      enum_field(
          "norms", o.norms,
          {{"before", BranchNorm::kBefore}, {"after", BranchNorm::kAfter}, {"both", BranchNorm::kBoth}},
          "where the norms of each branch stand: before attention and hidden layer, after them, as in OLMo 2, or "
          "both, as in Gemma 3")
          .without_effect_at_default(),
      field("norms_from_one", o.norms_from_one, "weights of norms are what is added to 1, as in Gemma")
          .without_effect_at_default(),
      enum_field(
          "gate", o.gate, {{"silu", GateForm::kSilu}, {"gelu", GateForm::kGelu}, {"gelu_erf", GateForm::kGeluErf}},
          "the function of the hidden layer's gate, or without a gate of what goes up; gelu in its tanh form, as "
          "in Gemma, gelu_erf the exact one")
          .without_effect_at_default(),
      field("scaled_embedding", o.scaled_embedding, "embeddings are multiplied by the root of the width, as in Gemma")
          .without_effect_at_default(),
      field("attention_scale", o.attention_scale, "what scores are multiplied by; 0: 1 by the root of head_width")
          .with_range(0, 1e3)
          .without_effect_at_default(),
      field("score_cap", o.score_cap, "c: scores s of attention are c tanh(s / c), as in Gemma 2 (50); 0: s")
          .with_range(0, 1e6)
          .without_effect_at_default(),
      field("logit_cap", o.logit_cap, "likewise of the model's logits (30)")
          .with_range(0, 1e6)
          .without_effect_at_default(),
      field("rope_width", o.rope_width,
            "features of a head that rotary embeddings turn, the first ones, as in GPT-NeoX; an even number; 0: all")
          .with_unit("features")
          .with_range(0, 2 * RotaryArgs::kMostPairs)
          .without_effect_at_default(),
      field("window_theta", o.window_theta,
            "rope_theta of layers with the window, whose frequencies are not scaled; 0: as of the others")
          .with_unit("positions")
          .with_range(0, 1e12)
          .without_effect_at_default()};
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
  require(!qk_norm_whole || qk_norm, ExitCode::kConfig, "model.qk_norm_whole: true needs model.qk_norm: true");
  require(window_from == 0 || window > 0, ExitCode::kConfig, "model.window_from: ", window_from,
          " has an effect only with model.window");
  require(full_every == 0 || window > 0, ExitCode::kConfig, "model.full_every: ", full_every,
          " has an effect only with model.window");
  require(window_theta == 0 || window > 0, ExitCode::kConfig, "model.window_theta: ", window_theta,
          " has an effect only with model.window");
  require(window_theta == 0 || window_theta >= 1, ExitCode::kConfig, "model.window_theta: ", window_theta,
          " is neither 0 nor at least 1");
  if (o.rope_width == 0) o.rope_width = o.head_width;
  require(o.rope_width % 2 == 0 && o.rope_width <= o.head_width, ExitCode::kConfig, "model.rope_width: ", rope_width,
          " must be even and at most the width of a head, ", o.head_width);
  require(!fused_by_head || (fused && o.kv_heads == heads), ExitCode::kConfig,
          "model.fused_by_head: true needs model.fused: true and as many model.kv_heads as model.heads");
  require(!parallel || norms == BranchNorm::kBefore, ExitCode::kConfig,
          "model.parallel: true needs model.norms: before");
  require(norm == NormForm::kRms || !norms_from_one, ExitCode::kConfig,
          "model.norms_from_one: true has an effect only with model.norm: rms");
  constexpr double kLeastCap = 1e-3;
  for (const auto& [key, cap] : {std::pair("score_cap", score_cap), std::pair("logit_cap", logit_cap)})
    require(cap == 0 || cap >= kLeastCap, ExitCode::kConfig, "model.", key, ": ", cap, " is neither 0 nor at least ",
            kLeastCap);
  if (o.hidden == 0) o.hidden = round_up(ceil_div(8 * width, 3), 32);
  return o;
}

namespace {
Init llama_weights() { return Init::normal(0.02); }
// Each block adds two branches to the residual stream: scaled so that its variance does not grow with depth.
Init branch_end(const LlamaOptions& o) { return Init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(o.layers))); }
}  // namespace

LlamaNorm& LlamaPart::norm_child(const char* name, const LlamaOptions& o, int64_t width) {
  if (o.norm == NormForm::kLayer) return child<LayerNorm>(name, width, true, o.norm_eps);
  return child<RmsNorm>(name, width, o.norm_eps, o.norms_from_one);
}
LlamaNorm* LlamaPart::post_norm_child(const LlamaOptions& o) {
  return o.norms == BranchNorm::kBoth ? &norm_child("post_norm", o, o.width) : nullptr;
}

LlamaAttention::LlamaAttention(const LlamaOptions& o, int64_t layer, int64_t context)
    : heads_(o.heads),
      kv_heads_(o.kv_heads),
      head_width_(o.head_width),
      window_(o.window_of(layer)),
      norms_(o.norms),
      scale_(o.attention_scale > 0 ? o.attention_scale * std::sqrt(static_cast<double>(o.head_width)) : 1),
      rope_scale_(o.has_rope(layer) ? rope_score_scale(o.rope_of(layer)) : 1),
      score_cap_(o.score_cap),
      frequencies_(o.has_rope(layer) ? rope_frequencies(o.rope_of(layer), o.rope_width, o.has_two_ropes() ? 0 : context)
                                     : std::vector<double>()),
      short_tokens_(o.rope.context),
      long_frequencies_(o.has_rope(layer) && o.has_two_ropes()
                            ? rope_frequencies(o.rope_of(layer), o.rope_width, o.rope.context + 1)
                            : std::vector<double>()),
      norm_(norm_child("norm", o, o.width)),
      q_(part_of_qkv(o, "q", o.heads)),
      k_(part_of_qkv(o, "k", o.kv_heads)),
      v_(part_of_qkv(o, "v", o.kv_heads)),
      qkv_(o.fused
               ? &child<Linear>("qkv", o.width, (o.heads + 2 * o.kv_heads) * o.head_width, o.qkv_bias, llama_weights())
               : nullptr),
      fused_by_head_(o.fused_by_head),
      q_norm_(o.qk_norm ? &norm_child("q_norm", o, (o.qk_norm_whole ? o.heads : 1) * o.head_width) : nullptr),
      k_norm_(o.qk_norm ? &norm_child("k_norm", o, (o.qk_norm_whole ? o.kv_heads : 1) * o.head_width) : nullptr),
      qk_norm_whole_(o.qk_norm_whole),
      proj_(child<Linear>("proj", o.heads * o.head_width, o.width, o.proj_bias, branch_end(o))),
      post_norm_(post_norm_child(o)) {
  if (qkv_ && (o.fused_by_head || o.kv_heads != o.heads)) qkv_->set_undivided();
}

Linear* LlamaAttention::part_of_qkv(const LlamaOptions& o, const char* name, int64_t heads) {
  return o.fused ? nullptr : &child<Linear>(name, o.width, heads * o.head_width, o.qkv_bias, llama_weights());
}

Tensor LlamaAttention::scaled(const Tensor& q) const {
  const int64_t turned = 2 * std::ssize(frequencies_);
  if (rope_scale_ == 1 || turned == head_width_) return scale_ * rope_scale_ == 1 ? q : affine(q, scale_ * rope_scale_);
  return concat(
      {affine(slice(q, 3, 0, turned), scale_ * rope_scale_), affine(slice(q, 3, turned, head_width_), scale_)}, 3);
}

// Capped scores are always computed by kernels of our own. Rows no longer than the window are computed without one.
MaskedAttentions LlamaAttention::masked_attention(DType type) const {
  if (score_cap_ > 0) return {};
  MaskedAttentions kinds;
  for (const int64_t window : {int64_t{0}, window_})
    kinds.insert({type, head_width_, heads_ / kv_heads_, window, true});
  return kinds;
}

Tensor LlamaAttention::forward(const Tensor& x_BTC, const AttentionScope& scope) {
  const int64_t batch = x_BTC.dim(0), time = x_BTC.dim(1);
  const Tensor x = norms_ == BranchNorm::kAfter ? x_BTC : norm_(x_BTC);
  Tensor together = qkv_ ? (*qkv_)(x) : Tensor();
  if (fused_by_head_) together = reshape(together, {batch, time, heads_, 3 * head_width_});
  // `first`: of the heads that are computed together, or of the three of each head.
  auto heads_of = [&](Linear* linear, int64_t first, int64_t heads, LlamaNorm* norm) {
    Tensor y = linear           ? (*linear)(x)
               : fused_by_head_ ? slice(together, 3, first * head_width_, (first + 1) * head_width_)
                                : slice(together, 2, first * head_width_, (first + heads) * head_width_);
    if (norm && qk_norm_whole_) y = (*norm)(y);
    y = reshape(y, {batch, time, heads, head_width_});
    return norm && !qk_norm_whole_ ? (*norm)(y) : y;
  };
  const Tensor starts = scope.cache ? scope.cache->starts() : Tensor();
  const bool is_long = !long_frequencies_.empty() && (scope.cache ? scope.cache->capacity() : time) > short_tokens_;
  const std::vector<double>& frequencies = is_long ? long_frequencies_ : frequencies_;
  const auto placed = [&](const Tensor& y) { return frequencies.empty() ? y : rotary(y, frequencies, starts); };
  const Tensor q = scaled(placed(heads_of(q_, 0, heads_, q_norm_)));
  const Tensor k = placed(heads_of(k_, fused_by_head_ ? 1 : heads_, kv_heads_, k_norm_)),
               v = heads_of(v_, fused_by_head_ ? 2 : heads_ + kv_heads_, kv_heads_, nullptr);
  const Tensor y = proj_(
      reshape(causal_attention_of(*this, q, k, v, scope, window_, score_cap_), {batch, time, heads_ * head_width_}));
  return norms_ == BranchNorm::kAfter ? norm_(y) : post_norm_ ? (*post_norm_)(y) : y;
}

LlamaBlock::LlamaBlock(const LlamaOptions& o, int64_t layer, int64_t context)
    : norms_(o.norms),
      parallel_(o.parallel),
      gated_(o.gated),
      gate_form_(o.gate),
      attention_(child<LlamaAttention>("attention", o, layer, context)),
      norm_(norm_child("norm", o, o.width)),
      hidden_(o.hidden),
      gate_(o.gated && !o.fused ? &child<Linear>("gate", o.width, o.hidden, o.mlp_bias, llama_weights()) : nullptr),
      up_(o.gated && o.fused ? nullptr : &child<Linear>("up", o.width, o.hidden, o.mlp_bias, llama_weights())),
      gate_up_(o.gated && o.fused ? &child<Linear>("gate_up", o.width, 2 * o.hidden, o.mlp_bias, llama_weights())
                                  : nullptr),
      down_(child<Linear>("down", o.hidden, o.width, o.mlp_bias, branch_end(o))),
      post_norm_(post_norm_child(o)) {}

int LlamaBlock::recompute_attention(bool on) {
  attention_.set_recompute(on);
  return 1;
}

Tensor LlamaBlock::hidden(const Tensor& x) {
  const auto activated = [&](const Tensor& y) {
    return gate_form_ == GateForm::kGelu ? gelu(y) : gate_form_ == GateForm::kGeluErf ? gelu_erf(y) : silu(y);
  };
  if (!gated_) return gate_form_ == GateForm::kGelu ? feed_forward(x, *up_, down_) : down_(activated((*up_)(x)));
  const Tensor together = gate_up_ ? (*gate_up_)(x) : Tensor();
  // In this order, which is that in which the gradients of x are added up.
  const Tensor up = up_ ? (*up_)(x) : slice(together, 2, hidden_, 2 * hidden_),
               gate = gate_ ? (*gate_)(x) : slice(together, 2, 0, hidden_);
  return down_(gate_form_ == GateForm::kSilu ? silu_mul(gate, up) : mul(activated(gate), up));
}

Tensor LlamaBlock::forward(const Tensor& x_BTC, const AttentionScope& scope) {
  const Tensor x = add(x_BTC, attention_(x_BTC, scope));
  if (parallel_) return add(x, hidden(norm_(x_BTC)));
  if (norms_ == BranchNorm::kAfter) return add(x, norm_(hidden(x)));
  const Tensor y = hidden(norm_(x));
  return add(x, post_norm_ ? (*post_norm_)(y) : y);
}

Llama::Llama(const LlamaOptions& options, const TaskSpec& task)
    : options_(options.resolved()),
      context_(task.input.rank() == 1 ? task.input[0] : 0),
      wte_(child<Embedding>("wte", vocabulary_of(options_.vocabulary, task), options_.width, llama_weights())) {
  wte_.set_called();
  require(task.input.rank() == 1, ExitCode::kConfig, "model.name: llama needs tokens, not samples of shape ",
          task.input);
  for (int64_t i = 0; i < options_.layers; ++i)
    blocks_.push_back(&child<LlamaBlock>(str("blocks.", i), options_, i, context_));
  if (options_.norm == NormForm::kLayer) norm_ = &child<LayerNorm>("norm", options_.width, true, options_.norm_eps);
  else norm_ = &child<RmsNorm>("norm", options_.width, options_.norm_eps, options_.norms_from_one);
  if (options_.tied) return;
  head_ = &child<Linear>("head", options_.width, wte_.weight().dim(0), false, llama_weights());
  wte_.set_untied();
}

namespace {
// A normal number to nearest, ties to even, as transformers keeps the scale in the type of the weights. On the host: no
// forward pass waits for it.
double rounded_to(DType dtype, double value) {
  const int digits = dtype == DType::kBFloat16 ? 8 : dtype == DType::kFloat16 ? 11 : dtype == DType::kFloat32 ? 24 : 53;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, digits)), exponent - digits);
}
}  // namespace

int64_t Llama::cached_tokens() const {
  return options_.has_two_ropes() ? options_.rope.context : TokenTransformer::cached_tokens();
}

const Tensor* Llama::head() const {
  if (!head_) return &wte_.weight();
  return head_->has_adapter() ? nullptr : &head_->weight();
}

Tensor Llama::with_head(const std::function<Tensor(const Tensor& weight)>& use) {
  return head_ ? head_->with_weight(use) : use(wte_.weight());
}

Tensor Llama::forward(const Tensor& tokens_BT, const AttentionScope& scope) {
  const Tensor h = features(tokens_BT, scope);
  const Tensor logits = head_ ? (*head_)(h) : linear(h, wte_.weight());
  return options_.logit_cap > 0 ? soft_cap(logits, options_.logit_cap) : logits;
}

Tensor Llama::features(const Tensor& tokens_BT, const AttentionScope& scope) {
  check(tokens_BT.rank() == 2 && (scope.positions || tokens_BT.dim(1) <= context_), "llama: tokens ", tokens_BT,
        " for a context of ", context_);
  Tensor h = wte_(tokens_BT);
  if (options_.scaled_embedding) h = affine(h, rounded_to(h.dtype(), std::sqrt(static_cast<double>(options_.width))));
  for (LlamaBlock* block : blocks_) h = (*block)(h, scope);
  if (scope.cache) h = scope.cache->last_of(h);
  return (*norm_)(h);
}

double Llama::flops() const {
  const int64_t tied_head = head_ ? 0 : wte_.weight().numel();
  double keys = 0;
  for (int64_t layer = 0; layer < options_.layers; ++layer) keys += visible_keys(context_, options_.window_of(layer));
  return decoder_flops(context_, multiplying_parameters(*this) + tied_head, options_.heads * options_.head_width, keys);
}

Choice<ModelKind> llama_choice() { return model_choice<Llama, LlamaOptions>("llama"); }

}  // namespace lockstep
