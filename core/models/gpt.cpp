#include "core/models/gpt.h"

#include <cmath>

#include "core/models/token_extents.h"
#include "core/nn/key_value_cache.h"
#include "core/ops/ops.h"

namespace lockstep {

std::vector<Field> fields(GptOptions& o) {
  return {
      field("layers", o.layers, "transformer blocks").with_range(1, 1000),
      field("heads", o.heads, "attention heads; must divide the width").with_range(1, 1024),
      field("width", o.width, "features of a token").with_unit("features").with_range(1, 65536),
      field("dropout", o.dropout, "probability of dropping a feature after the embedding and in each residual branch")
          .with_range(0, 0.99),
      field("bias", o.bias, "biases in linear layers and norms"),
      vocabulary_field(o.vocabulary),
      positions_field(o.positions)};
}

namespace {
Init weights() { return Init::normal(0.02); }
// Each block adds two branches to the residual stream: scaled so that its variance does not grow with depth.
Init branch_end(const GptOptions& o) { return Init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(o.layers))); }
}  // namespace

GptBlock::GptBlock(const GptOptions& o)
    : heads_(o.heads),
      ln1_(child<LayerNorm>("ln1", o.width, o.bias)),
      ln2_(child<LayerNorm>("ln2", o.width, o.bias)),
      qkv_(child<Linear>("qkv", o.width, 3 * o.width, o.bias, weights())),
      proj_(child<Linear>("proj", o.width, o.width, o.bias, branch_end(o))),
      up_(child<Linear>("up", o.width, 4 * o.width, o.bias, weights())),
      down_(child<Linear>("down", 4 * o.width, o.width, o.bias, branch_end(o))),
      drop1_(child<Dropout>("drop1", o.dropout)),
      drop2_(child<Dropout>("drop2", o.dropout)) {}

int GptBlock::recompute_attention(bool on) {
  attend_again_ = on;
  return 1;
}

Tensor GptBlock::attend(const Tensor& x_BTC, const AttentionScope& scope) {
  const Tensor qkv = qkv_(ln1_(x_BTC));
  if (!scope.cache && !scope.documents) return proj_(causal_attention(qkv, heads_));
  const int64_t width = x_BTC.dim(2);
  const auto part = [&](int64_t i) {
    return reshape(slice(qkv, 2, i * width, (i + 1) * width), {x_BTC.dim(0), x_BTC.dim(1), heads_, width / heads_});
  };
  return proj_(reshape(causal_attention_of(*this, part(0), part(1), part(2), scope), x_BTC.shape()));
}

Tensor GptBlock::forward(const Tensor& x_BTC, const AttentionScope& scope) {
  const Tensor attended = attend_again_ ? recomputed(x_BTC, trainable({&ln1_, &qkv_, &proj_}),
                                                     [=, this](const Tensor& x) { return attend(x, scope); })
                                        : attend(x_BTC, scope);
  const auto [x, normed] = ln2_.of_sum(x_BTC, drop1_(attended));
  return add(x, drop2_(feed_forward(normed, up_, down_)));
}

Gpt::Gpt(const GptOptions& o, const TaskSpec& task)
    : context_(task.input.rank() == 1 ? task.input[0] : 0),
      wte_(child<Embedding>("wte", vocabulary_of(o.vocabulary, task), o.width, weights())),
      wpe_(child<Embedding>("wpe", positions_of(o.positions, context_), o.width, weights())),
      drop_(child<Dropout>("drop", o.dropout)) {
  require(task.input.rank() == 1, ExitCode::kConfig, "model.name: gpt needs tokens, not samples of shape ", task.input);
  require(o.width % o.heads == 0, ExitCode::kConfig, "model.heads: ", o.heads,
          " does not divide model.width: ", o.width);
  for (int64_t i = 0; i < o.layers; ++i) blocks_.push_back(&child<GptBlock>(cat("blocks.", i), o));
  ln_ = &child<LayerNorm>("ln", o.width, o.bias);
}

Tensor Gpt::forward(const Tensor& tokens_BT, const AttentionScope& scope) {
  check(tokens_BT.rank() == 2 && tokens_BT.dim(1) <= context_, "gpt: tokens ", tokens_BT, " for a context of ",
        context_);
  const Tensor positions = scope.cache       ? embedding(wpe_.weight(), scope.cache->positions(tokens_BT.dim(1)))
                           : scope.positions ? embedding(wpe_.weight(), scope.positions)
                                             : slice(wpe_.weight(), 0, 0, tokens_BT.dim(1));
  Tensor h = drop_(add(wte_(tokens_BT), positions));
  for (GptBlock* block : blocks_) h = (*block)(h, scope);
  if (scope.cache) h = scope.cache->last_of(h);
  return logits((*ln_)(h), wte_.weight());
}

double Gpt::flops() const {
  int64_t n = 0;
  for (const NamedParameter& p : parameters()) n += p.parameter->value.numel();
  const auto blocks = static_cast<int64_t>(blocks_.size());
  return static_cast<double>(context_) * 6 * static_cast<double>(n + blocks * wte_.weight().dim(1) * context_);
}

Choice<ModelKind> gpt_choice() { return model_choice<Gpt, GptOptions>("gpt"); }

}  // namespace lockstep
