#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

// Extents alone: addresses and types are to come.
ConvArgs extents(const Shape& x, const Shape& weight, const ConvOptions& o) {
  ConvArgs a;
  a.images = x[0], a.height = x[1], a.width = x[2], a.in_channels = x[3];
  a.out_channels = weight[0], a.kernel_h = weight[1], a.kernel_w = weight[2];
  a.stride = o.stride, a.padding = o.padding, a.dilation = o.dilation, a.groups = o.groups;
  a.out_height = (a.height + 2 * o.padding - o.dilation * (a.kernel_h - 1) - 1) / o.stride + 1;
  a.out_width = (a.width + 2 * o.padding - o.dilation * (a.kernel_w - 1) - 1) / o.stride + 1;
  return a;
}

PoolArgs extents(const Shape& x, int64_t window, int64_t stride, int64_t padding) {
  PoolArgs a;
  a.images = x[0], a.height = x[1], a.width = x[2], a.channels = x[3];
  a.window = window, a.stride = stride, a.padding = padding;
  a.out_height = (a.height + 2 * padding - window) / stride + 1;
  a.out_width = (a.width + 2 * padding - window) / stride + 1;
  return a;
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options, CallSite place) {
  const TraceOp op("conv2d");
  const auto& [stride, padding, dilation, groups] = options;
  check(x.rank() == 4 && weight.rank() == 4 && stride > 0 && padding >= 0 && dilation > 0 && groups > 0 &&
            x.dim(3) == groups * weight.dim(3) && weight.dim(0) % groups == 0 &&
            (!bias || bias.numel() == weight.dim(0)),
        "conv2d: images ", x, " (B, H, W, C) with weight ", weight, " (O, KH, KW, C / groups), stride ", stride,
        ", padding ", padding, ", dilation ", dilation, ", ", groups, " groups");
  ConvArgs a = extents(x.shape(), weight.shape(), options);
  check(a.height + 2 * padding > dilation * (a.kernel_h - 1) && a.width + 2 * padding > dilation * (a.kernel_w - 1),
        "conv2d: images ", x, " are smaller than weight ", weight,
        dilation > 1 ? str(" with dilation ", dilation) : "");
  const Tensor dense = raw::contiguous(x.detach()), w = raw::contiguous(weight.detach());
  Tensor y = Tensor::empty({a.images, a.out_height, a.out_width, a.out_channels}, x.dtype());
  a.x = const_cast<void*>(dense.read()), a.x_dtype = x.dtype();
  a.weight = const_cast<void*>(w.read()), a.weight_dtype = w.dtype();
  if (bias) a.bias = bias.read(), a.bias_dtype = bias.dtype();
  a.y = y.write(), a.y_dtype = y.dtype();
  raw::launch([](Parallel& p, const ConvArgs& args) { kernels(p).conv(p, args); }, a);
  return result_of(
      "conv2d", place, y, {&x, &weight, &bias},
      [x = Saved(dense), w = Saved(w), options](const Tensor& gradient, Gradients& grads) {
        const Tensor g = raw::contiguous(gradient);
        const Tensor &input = x.get("conv2d"), &weight = w.get("conv2d");
        ConvArgs b = extents(input.shape(), weight.shape(), options);
        b.y = const_cast<void*>(g.read()), b.y_dtype = g.dtype();
        if (grads.wanted(1)) {
          Tensor dw = grads.target(1, b.accumulate);
          b.x = const_cast<void*>(input.read()), b.x_dtype = input.dtype();
          b.weight = dw.write(), b.weight_dtype = dw.dtype();
          raw::launch([](Parallel& p, const ConvArgs& args) { kernels(p).conv_backward_weight(p, args); }, b);
        }
        if (grads.wanted(2)) {
          bool accumulate = false;
          Tensor db = grads.target(2, accumulate);
          raw::sum_dims(db, g, {0, 1, 2}, accumulate);
        }
        if (grads.wanted(0)) {
          Tensor dx = grads.target(0, b.accumulate);
          b.weight = const_cast<void*>(weight.read()), b.weight_dtype = weight.dtype();
          b.x = dx.write(), b.x_dtype = dx.dtype();
          raw::launch([](Parallel& p, const ConvArgs& args) { kernels(p).conv_backward_input(p, args); }, b);
        }
      });
}

// conv2d's three kernels with the parts of input and output exchanged.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t stride, int64_t padding,
                        CallSite place) {
  const TraceOp op("conv_transpose2d");
  check(x.rank() == 4 && weight.rank() == 4 && x.dim(3) == weight.dim(0) && stride > 0 && padding >= 0 &&
            (!bias || bias.numel() == weight.dim(3)),
        "conv_transpose2d: images ", x, " (B, H, W, I) with weight ", weight, " (I, KH, KW, O)");
  const Shape out{x.dim(0), (x.dim(1) - 1) * stride - 2 * padding + weight.dim(1),
                  (x.dim(2) - 1) * stride - 2 * padding + weight.dim(2), weight.dim(3)};
  check(out[1] > 0 && out[2] > 0, "conv_transpose2d: images ", x, " with weight ", weight, ", stride ", stride,
        ", padding ", padding, ": nothing is left");
  const Tensor dense = raw::contiguous(x.detach()), w = raw::contiguous(weight.detach());
  const Tensor y = Tensor::empty(out, x.dtype());
  if (bias) raw::copy(y, bias.detach());
  ConvArgs a = extents(out, w.shape(), {.stride = stride, .padding = padding});
  a.accumulate = bias.defined();
  a.y = const_cast<void*>(dense.read()), a.y_dtype = x.dtype();
  a.weight = const_cast<void*>(w.read()), a.weight_dtype = w.dtype();
  a.x = y.write(), a.x_dtype = y.dtype();
  raw::launch([](Parallel& p, const ConvArgs& args) { kernels(p).conv_backward_input(p, args); }, a);
  return result_of("conv_transpose2d", place, y, {&x, &weight, &bias},
                   [x = Saved(dense), w = Saved(w), stride, padding](const Tensor& gradient, Gradients& grads) {
                     const Tensor g = raw::contiguous(gradient);
                     const Tensor &input = x.get("conv_transpose2d"), &weight = w.get("conv_transpose2d");
                     ConvArgs b = extents(g.shape(), weight.shape(), {.stride = stride, .padding = padding});
                     b.x = const_cast<void*>(g.read()), b.x_dtype = g.dtype();
                     if (grads.wanted(1)) {
                       ConvArgs c = b;
                       const Tensor dw = grads.target(1, c.accumulate);
                       c.y = const_cast<void*>(input.read()), c.y_dtype = input.dtype();
                       c.weight = dw.write(), c.weight_dtype = dw.dtype();
                       raw::launch([](Parallel& p, const ConvArgs& args) { kernels(p).conv_backward_weight(p, args); },
                                   c);
                     }
                     if (grads.wanted(2)) {
                       bool accumulate = false;
                       const Tensor db = grads.target(2, accumulate);
                       raw::sum_dims(db, g, {0, 1, 2}, accumulate);
                     }
                     if (grads.wanted(0)) {
                       const Tensor dx = Tensor::empty(input.shape(), g.dtype());
                       b.weight = const_cast<void*>(weight.read()), b.weight_dtype = weight.dtype();
                       b.y = dx.write(), b.y_dtype = dx.dtype();
                       raw::launch([](Parallel& p, const ConvArgs& args) { kernels(p).conv(p, args); }, b);
                       grads.add(0, dx);
                     }
                   });
}

Tensor max_pool2d(const Tensor& x, int64_t window, int64_t stride, int64_t padding, CallSite place) {
  const TraceOp op("max_pool2d");
  check(x.rank() == 4 && window > 0 && window < 16 && stride > 0 && padding >= 0 && 2 * padding <= window &&
            x.dim(1) + 2 * padding >= window && x.dim(2) + 2 * padding >= window,
        "max_pool2d: ", x, " with window ", window, ", stride ", stride, ", padding ", padding);
  PoolArgs a = extents(x.shape(), window, stride, padding);
  a.dtype = x.dtype();
  const Tensor dense = raw::contiguous(x.detach());
  const Shape out{a.images, a.out_height, a.out_width, a.channels};
  Tensor y = Tensor::empty(out, x.dtype()), index = Tensor::empty(out, DType::kUInt8);
  a.x = const_cast<void*>(dense.read());
  a.y = y.write();
  a.index = static_cast<uint8_t*>(index.write());
  raw::launch([](Parallel& p, const PoolArgs& args) { kernels(p).max_pool(p, args); }, a);
  return result_of(
      "max_pool2d", place, y, {&x},
      [index = Saved(index), shape = x.shape(), window, stride, padding](const Tensor& gradient, Gradients& grads) {
        const Tensor g = raw::contiguous(gradient);
        Tensor dx = Tensor::empty(shape, g.dtype());
        PoolArgs b = extents(shape, window, stride, padding);
        b.dtype = g.dtype();
        b.y = const_cast<void*>(g.read());
        b.index = static_cast<uint8_t*>(const_cast<void*>(index.get("max_pool2d").read()));
        b.x = dx.write();
        raw::launch([](Parallel& p, const PoolArgs& args) { kernels(p).max_pool_backward(p, args); }, b);
        grads.add(0, dx);
      });
}

}  // namespace lockstep
