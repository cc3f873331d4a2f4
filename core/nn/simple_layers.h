// Operations without parameters as modules, for a Sequential (core/nn/containers.h): activations, pooling, reshaping.
// Each says which operation of core/ops/ops.h it is.
#pragma once

#include "core/nn/module.h"
#include "core/ops/ops.h"

namespace lockstep {

template <Tensor (*kOperation)(const Tensor&, CallSite)>
class Activation : public ModuleOf<Tensor> {
 public:
  Tensor forward(const Tensor& x) override { return kOperation(x, CallSite::current()); }
};
using Relu = Activation<relu>;
using Gelu = Activation<gelu>;  // in its tanh form
using GeluErf = Activation<gelu_erf>;
using Silu = Activation<silu>;
using Tanh = Activation<tanh>;
using Sigmoid = Activation<sigmoid>;
using Softplus = Activation<softplus>;
using Softmax = Activation<softmax>;  // of the last dimension

class LeakyRelu : public ModuleOf<Tensor> {
 public:
  explicit LeakyRelu(double slope = 0.01) : slope_(slope) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, slope_); }

 private:
  double slope_;
};

// Of images [B, H, W, C]; a stride of 0 is the window.
class MaxPool2d : public ModuleOf<Tensor> {
 public:
  explicit MaxPool2d(int64_t window, int64_t stride = 0, int64_t padding = 0)
      : window_(window), stride_(stride > 0 ? stride : window), padding_(padding) {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, window_, stride_, padding_); }

 private:
  int64_t window_, stride_, padding_;
};

class AvgPool2d : public ModuleOf<Tensor> {
 public:
  explicit AvgPool2d(int64_t window, int64_t stride = 0, int64_t padding = 0, bool count_padding = true)
      : window_(window), stride_(stride > 0 ? stride : window), padding_(padding), count_padding_(count_padding) {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, window_, stride_, padding_, count_padding_); }

 private:
  int64_t window_, stride_, padding_;
  bool count_padding_;
};

class AdaptiveAvgPool2d : public ModuleOf<Tensor> {
 public:
  AdaptiveAvgPool2d(int64_t height, int64_t width) : height_(height), width_(width) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, height_, width_); }

 private:
  int64_t height_, width_;
};

class Upsample2d : public ModuleOf<Tensor> {
 public:
  explicit Upsample2d(int64_t factor, Upsampling how = Upsampling::kNearest) : factor_(factor), how_(how) {}
  Tensor forward(const Tensor& x) override { return upsample2d(how_, x, factor_); }

 private:
  int64_t factor_;
  Upsampling how_;
};

// [B, ...] -> [B, n]
class Flatten : public ModuleOf<Tensor> {
 public:
  Tensor forward(const Tensor& x) override { return reshape(x, {x.dim(0), -1}); }
};

}  // namespace lockstep
