// EncoderBlock: a transformer block in which every position sees every other of its document: attention and a
// feed-forward layer, each added to what it read, with layer norms before them (pre-norm) or after (post-norm, as
// Vaswani et al. 2017).
#pragma once

#include "core/base/field.h"
#include "core/nn/layers.h"

namespace lockstep {

enum class Gelu { kTanh, kErf };  // by its approximation, or by the normal distribution function
Field gelu_field(Gelu& gelu);     // of a model's options: "gelu"
inline Tensor apply(Gelu kind, const Tensor& x) { return kind == Gelu::kErf ? gelu_erf(x) : gelu(x); }

class EncoderBlock : public Module {
 public:
  struct Options {
    int64_t heads = 4, width = 128;
    double dropout = 0;
    bool pre_norm = true;
    double eps = 1e-5;  // of the norms
    Gelu gelu = Gelu::kTanh;
  };
  explicit EncoderBlock(const Options& options);
  Tensor forward(const Tensor& x_BTC) override;
  int recompute_attention(bool on) override;

  // Multiply-adds of one position's products, `others` of them attended to.
  static double products(int64_t width, int64_t others) {
    return static_cast<double>(12 * width * width + 2 * width * others);
  }

 private:
  Tensor attend(const Tensor& x);

  Options options_;
  bool attend_again_ = false;
  LayerNorm &ln1_, &ln2_;
  Linear &qkv_, &proj_, &up_, &down_;
  Dropout &drop1_, &drop2_;
};

}  // namespace lockstep
