#include "core/nn/encoder.h"

#include "core/autograd/node.h"
#include "core/ops/ops.h"

namespace lockstep {
namespace {
Init encoder_weights() { return Init::normal(0.02); }
}  // namespace

Field gelu_field(GeluForm& gelu) {
  return enum_field(
             "gelu", gelu, {{"tanh", GeluForm::kTanh}, {"erf", GeluForm::kErf}},
             "the form of gelu: its tanh approximation, which is fused with the product before it, or the exact one")
      .without_effect_at_default();
}

EncoderBlock::EncoderBlock(const Options& o)
    : options_(o),
      ln1_(child<LayerNorm>("ln1", o.width, true, o.eps)),
      ln2_(child<LayerNorm>("ln2", o.width, true, o.eps)),
      qkv_(child<Linear>("qkv", o.width, 3 * o.width, true, encoder_weights())),
      proj_(child<Linear>("proj", o.width, o.width, true, encoder_weights())),
      up_(child<Linear>("up", o.width, 4 * o.width, true, encoder_weights())),
      down_(child<Linear>("down", 4 * o.width, o.width, true, encoder_weights())),
      drop1_(child<Dropout>("drop1", o.dropout)),
      drop2_(child<Dropout>("drop2", o.dropout)) {}

int EncoderBlock::recompute_attention(bool on) {
  attend_again_ = on;
  return 1;
}

Tensor EncoderBlock::attend(const Tensor& x, const AttentionScope& scope) {
  check(!scope.cache, name(), ": every position sees every other, so none can go on from a cache");
  const Tensor qkv = qkv_(options_.pre_norm ? ln1_(x) : x);
  if (!scope.documents) return proj_(attention(qkv, options_.heads));
  const int64_t width = options_.width, heads = options_.heads;
  const auto part = [&](int64_t i) {
    return reshape(slice(qkv, 2, i * width, (i + 1) * width), {x.dim(0), x.dim(1), heads, width / heads});
  };
  return proj_(reshape(attention(part(0), part(1), part(2), {.documents = scope.documents}), x.shape()));
}

Tensor EncoderBlock::forward(const Tensor& x_BTC, const AttentionScope& scope) {
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
