#include "core/nn/multi_head_attention.h"

#include "core/device/context.h"
#include "core/ops/ops.h"

namespace lockstep {
namespace {

int64_t head_width_of(int64_t width, int64_t heads, int64_t kv_heads) {
  require(heads > 0 && width % heads == 0, ExitCode::kConfig, "attention of ", heads,
          " heads, which do not divide its ", width, " features");
  require(kv_heads > 0 && heads % kv_heads == 0, ExitCode::kConfig, "attention with ", kv_heads,
          " heads of keys and values, which do not divide its ", heads, " heads");
  return width / heads;
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(int64_t width, int64_t heads, const Options& o)
    : heads_(heads),
      kv_heads_(o.kv_heads > 0 ? o.kv_heads : heads),
      head_width_(head_width_of(width, heads, kv_heads_)),
      dropout_(o.dropout),
      q_(child<Linear>("q", width, width, o.bias)),
      k_(child<Linear>("k", o.key_width > 0 ? o.key_width : width, kv_heads_ * head_width_, o.bias)),
      v_(child<Linear>("v", o.key_width > 0 ? o.key_width : width, kv_heads_ * head_width_, o.bias)),
      proj_(child<Linear>("proj", width, width, o.bias)) {}

MaskedAttentions MultiHeadAttention::masked_attention(DType type) const {
  MaskedAttentions kinds;
  for (const bool causal : {false, true}) kinds.insert({type, head_width_, heads_ / kv_heads_, 0, causal});
  return kinds;
}

Tensor MultiHeadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const AttentionOptions& options) {
  const auto heads_of = [&](Linear& linear, const Tensor& x, int64_t heads) {
    return reshape(linear(x), {x.dim(0), x.dim(1), heads, head_width_});
  };
  AttentionOptions o = options;
  o.drop_probability = training() ? dropout_ : 0;
  if (o.drop_probability > 0) o.drop_site = random_site(name());
  const Tensor y =
      attention(heads_of(q_, query, heads_), heads_of(k_, key, kv_heads_), heads_of(v_, value, kv_heads_), o);
  return proj_(reshape(y, {query.dim(0), query.dim(1), heads_ * head_width_}));
}

}  // namespace lockstep
