// TransformerBlock: attention and a feed-forward layer, each added to what it read, with layer norms before them
// (pre-norm) or after (post-norm, as Vaswani et al. 2017). A position sees every other of its document, or, causal, the
// earlier ones alone.
#pragma once

#include "core/base/field.h"
#include "core/nn/attention_scope.h"
#include "core/nn/layers.h"

namespace lockstep {

enum class GeluForm { kTanh, kErf };  // by its approximation, or by the normal distribution function
Field gelu_field(GeluForm& gelu);     // of a model's options: "gelu"
inline Tensor apply(GeluForm kind, const Tensor& x) { return kind == GeluForm::kErf ? gelu_erf(x) : gelu(x); }

class TransformerBlock : public ModuleOf<Tensor, AttentionScope> {
 public:
  struct Options {
    int64_t heads = 4, width = 128;
    double dropout = 0;
    bool pre_norm = true;
    double eps = 1e-5;  // of the norms
    GeluForm gelu = GeluForm::kTanh;
    bool causal = false;
    bool bias = true;                      // in linear layers and norms
    Init branch_end = Init::normal(0.02);  // initial weights of the two layers whose results are added
  };
  explicit TransformerBlock(const Options& options);
  // Throws ExitCode::kInternal for a cache where it is not causal.
  Tensor forward(const Tensor& x_BTC, const AttentionScope& scope) override;
  int recompute_attention(bool on) override;
  MaskedAttentions masked_attention(DType type) const override;

  // Multiply-adds of one position's products, `others` of them attended to.
  static double products(int64_t width, int64_t others) {
    return static_cast<double>(12 * width * width + 2 * width * others);
  }

 private:
  Tensor attend(const Tensor& x, const AttentionScope& scope);

  Options options_;
  bool attend_again_ = false;
  LayerNorm &ln1_, &ln2_;
  Linear &qkv_, &proj_, &up_, &down_;
  Dropout &drop1_, &drop2_;
};

}  // namespace lockstep
