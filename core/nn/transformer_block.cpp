#include "core/nn/transformer_block.h"

#include "core/autograd/node.h"
#include "core/nn/key_value_cache.h"
#include "core/ops/ops.h"

namespace lockstep {

Field gelu_field(GeluForm& gelu) {
  return enum_field(
             "gelu", gelu, {{"tanh", GeluForm::kTanh}, {"erf", GeluForm::kErf}},
             "the form of gelu: its tanh approximation, which is fused with the product before it, or the exact one")
      .without_effect_at_default();
}

TransformerBlock::TransformerBlock(const Options& o)
    : options_(o),
      ln1_(child<LayerNorm>("ln1", o.width, o.bias, o.eps)),
      ln2_(child<LayerNorm>("ln2", o.width, o.bias, o.eps)),
      qkv_(child<Linear>("qkv", o.width, 3 * o.width, o.bias, Init::normal(0.02))),
      proj_(child<Linear>("proj", o.width, o.width, o.bias, o.branch_end)),
      up_(child<Linear>("up", o.width, 4 * o.width, o.bias, Init::normal(0.02))),
      down_(child<Linear>("down", 4 * o.width, o.width, o.bias, o.branch_end)),
      drop1_(child<Dropout>("drop1", o.dropout)),
      drop2_(child<Dropout>("drop2", o.dropout)) {}

int TransformerBlock::recompute_attention(bool on) {
  attend_again_ = on;
  return 1;
}

MaskedAttentions TransformerBlock::masked_attention(DType type) const {
  return {{type, options_.width / options_.heads, 1, 0, options_.causal}};
}

Tensor TransformerBlock::attend(const Tensor& x, const AttentionScope& scope) {
  check(options_.causal || !scope.cache, name(), ": every position sees every other, so none can go on from a cache");
  const Tensor qkv = qkv_(options_.pre_norm ? ln1_(x) : x);
  const int64_t width = options_.width, heads = options_.heads;
  if (!scope.cache && !scope.documents)
    return proj_(options_.causal ? causal_attention(qkv, heads) : attention(qkv, heads));
  const auto part = [&](int64_t i) {
    return reshape(slice(qkv, 2, i * width, (i + 1) * width), {x.dim(0), x.dim(1), heads, width / heads});
  };
  const Tensor attended = options_.causal ? causal_attention_of(*this, part(0), part(1), part(2), scope)
                                          : attention(part(0), part(1), part(2), {.documents = scope.documents});
  return proj_(reshape(attended, x.shape()));
}

Tensor TransformerBlock::forward(const Tensor& x_BTC, const AttentionScope& scope) {
  const Tensor attended = drop1_(attend_again_ ? recomputed(x_BTC, trainable({&ln1_, &qkv_, &proj_}),
                                                            [=, this](const Tensor& x) { return attend(x, scope); })
                                               : attend(x_BTC, scope));
  const auto feed = [&](const Tensor& x) {
    if (options_.gelu == GeluForm::kErf) return drop2_(down_(gelu_erf(up_(x))));
    return drop2_(feed_forward(x, up_, down_));
  };
  if (options_.pre_norm) {
    const auto [x, normed] = ln2_.of_sum(x_BTC, attended);
    return add(x, feed(normed));
  }
  const Tensor x = ln1_.of_sum(x_BTC, attended).y;
  return ln2_.of_sum(x, feed(x)).y;
}

}  // namespace lockstep
