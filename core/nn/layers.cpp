#include "core/nn/layers.h"

#include <cmath>

namespace lockstep {
namespace {
double bound(int64_t fan_in) { return 1.0 / std::sqrt(static_cast<double>(fan_in)); }
Tensor or_none(Tensor* t) { return t ? *t : Tensor(); }
}  // namespace

Linear::Linear(int64_t in, int64_t out, bool bias)
    : weight_(parameter("weight", {out, in}, Init::uniform(bound(in)))),
      bias_(bias ? &parameter("bias", {out}, Init::uniform(bound(in))) : nullptr) {}
Linear::Linear(int64_t in, int64_t out, bool bias, Init init)
    : weight_(parameter("weight", {out, in}, init)), bias_(bias ? &parameter("bias", {out}, Init::zeros()) : nullptr) {}
Tensor Linear::forward(const Tensor& x) { return linear(x, weight_, bias()); }

LayerNorm::LayerNorm(int64_t width, bool bias, double eps)
    : weight_(parameter("weight", {width}, Init::ones())),
      bias_(bias ? &parameter("bias", {width}, Init::zeros()) : nullptr),
      eps_(eps) {}
Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, weight_, or_none(bias_), eps_); }

AddLayerNorm LayerNorm::of_sum(const Tensor& a, const Tensor& b) {
  AddLayerNorm out;
  out.y = surrounded([&] {
    out = add_layer_norm(a, b, weight_, or_none(bias_), eps_);
    return out.y;
  });
  return out;
}

Embedding::Embedding(int64_t count, int64_t width, Init init) : weight_(parameter("weight", {count, width}, init)) {}
Tensor Embedding::forward(const Tensor& index) { return embedding(weight_, index); }

Conv2d::Conv2d(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding)
    : weight_(parameter("weight", {out, kernel, kernel, in}, Init::uniform(bound(kernel * kernel * in)))),
      bias_(&parameter("bias", {out}, Init::uniform(bound(kernel * kernel * in)))),
      stride_(stride),
      padding_(padding) {}
Conv2d::Conv2d(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding, Init init)
    : weight_(parameter("weight", {out, kernel, kernel, in}, init)),
      bias_(nullptr),
      stride_(stride),
      padding_(padding) {}
Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight_, or_none(bias_), stride_, padding_); }

BatchNorm::BatchNorm(int64_t channels, double eps, double momentum)
    : weight_(parameter("weight", {channels}, Init::ones())),
      bias_(parameter("bias", {channels}, Init::zeros())),
      mean_(buffer("running_mean", {channels}, 0, momentum)),
      variance_(buffer("running_var", {channels}, 1, momentum)),
      eps_(eps) {}

Tensor BatchNorm::operator()(const Tensor& x, bool relu, const Tensor& addend) {
  return surrounded([&] { return normalised(x, relu, addend); });
}

Tensor BatchNorm::normalised(const Tensor& x, bool relu, const Tensor& addend) {
  BatchNormOptions options{.eps = eps_, .relu = relu, .addend = addend, .fixed_mean = {}, .fixed_variance = {}};
  if (!training()) {
    options.fixed_mean = mean_.value, options.fixed_variance = variance_.value;
    return batch_norm(x, weight_, bias_, options).y;
  }
  require(x.numel() > weight_.numel(), ExitCode::kConfig, "module ", name(), ": batch norm of ", x,
          ": one value a channel has no variance; use a larger batch.micro, or larger images");
  const BatchNormed out = batch_norm(x, weight_, bias_, options);
  mean_.update = out.mean, variance_.update = out.variance;
  return out.y;
}

Tensor Dropout::forward(const Tensor& x) { return training() && p_ > 0 ? dropout(x, p_, random_site(name())) : x; }

}  // namespace lockstep
