// MultiHeadAttention (Vaswani et al. 2017): attention with projections of queries, keys, values and result. Its
// parameters are those of the linear layers q, k, v and proj.
#pragma once

#include "core/nn/layers.h"

namespace lockstep {

class MultiHeadAttention : public ModuleOf<Tensor, Tensor, Tensor, AttentionOptions> {
 public:
  struct Options {
    int64_t kv_heads = 0;   // shared by heads / kv_heads heads of queries each; 0: as many as heads
    int64_t key_width = 0;  // features of what is attended to; 0: width
    bool bias = true;
    double dropout = 0;  // of the probabilities
  };
  // `heads` must divide `width`, and kv_heads the heads (ExitCode::kConfig).
  MultiHeadAttention(int64_t width, int64_t heads, const Options& options);
  MultiHeadAttention(int64_t width, int64_t heads) : MultiHeadAttention(width, heads, Options{}) {}

  // Queries [B, T, width], keys and values [B, S, key_width]: [B, T, width]. S may differ from T (cross attention)
  // where the options are not causal; they say who sees whom. Dropout is this module's.
  Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) override;
  // In both orders, without a window: options come with each call.
  MaskedAttentions masked_attention(DType type) const override;
  using ModuleOf::operator();
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value) {
    return (*this)(query, key, value, {});
  }
  // Of a sequence to itself.
  Tensor operator()(const Tensor& x, const AttentionOptions& options = {}) { return (*this)(x, x, x, options); }

 private:
  int64_t heads_, kv_heads_, head_width_;
  double dropout_;
  Linear &q_, &k_, &v_, &proj_;
};

}  // namespace lockstep
