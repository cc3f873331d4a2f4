#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

Tensor resampled(const char* name, const Tensor& x, const ResampleAxis& height, const ResampleAxis& width,
                 CallSite place) {
  ResampleArgs sizes;
  sizes.images = x.dim(0), sizes.channels = x.dim(3);
  sizes.height = height, sizes.width = width;
  sizes.dtype = x.dtype();
  const Tensor dense = raw::contiguous(x.detach());
  const Tensor y = Tensor::empty({x.dim(0), height.out, width.out, x.dim(3)}, x.dtype());
  ResampleArgs a = sizes;
  a.x = const_cast<void*>(dense.read()), a.y = y.write();
  raw::launch([](Parallel& p, const ResampleArgs& args) { kernels(p).resample(p, args); }, a);
  return result_of(name, place, y, {&x}, [sizes, shape = x.shape()](const Tensor& gradient, Gradients& grads) {
    const Tensor g = raw::contiguous(gradient), dx = Tensor::empty(shape, g.dtype());
    ResampleArgs b = sizes;
    b.dtype = g.dtype();
    b.x = dx.write(), b.y = const_cast<void*>(g.read());
    raw::launch([](Parallel& p, const ResampleArgs& args) { kernels(p).resample_backward(p, args); }, b);
    grads.add(0, dx);
  });
}

Tensor resized(const char* name, const Tensor& x, ResampleMode mode, int64_t height, int64_t width, CallSite place) {
  check(x.rank() == 4 && x.numel() > 0 && height > 0 && width > 0, name, ": images ", x, " (B, H, W, C) to ", height,
        " x ", width);
  return resampled(name, x, {.mode = mode, .in = x.dim(1), .out = height}, {.mode = mode, .in = x.dim(2), .out = width},
                   place);
}

}  // namespace

Tensor avg_pool2d(const Tensor& x, int64_t window, int64_t stride, int64_t padding, bool count_padding,
                  CallSite place) {
  const TraceOp op("avg_pool2d");
  check(x.rank() == 4 && window > 0 && stride > 0 && padding >= 0 && 2 * padding <= window &&
            x.dim(1) + 2 * padding >= window && x.dim(2) + 2 * padding >= window,
        "avg_pool2d: ", x, " with window ", window, ", stride ", stride, ", padding ", padding);
  ResampleAxis axes[2];
  for (int i = 0; i < 2; ++i) {
    axes[i].in = x.dim(1 + i), axes[i].out = (axes[i].in + 2 * padding - window) / stride + 1;
    axes[i].window = window, axes[i].stride = stride, axes[i].padding = padding;
    axes[i].count_padding = count_padding;
  }
  return resampled("avg_pool2d", x, axes[0], axes[1], place);
}

Tensor adaptive_avg_pool2d(const Tensor& x, int64_t height, int64_t width, CallSite place) {
  const TraceOp op("adaptive_avg_pool2d");
  if (x.rank() == 4 && x.numel() > 0 && height == 1 && width == 1)
    return reshape(mean(x, {1, 2}, place), {x.dim(0), 1, 1, x.dim(3)}, place);
  return resized("adaptive_avg_pool2d", x, ResampleMode::kAdaptive, height, width, place);
}

Tensor upsample2d(Upsampling how, const Tensor& x, int64_t height, int64_t width, CallSite place) {
  const TraceOp op("upsample2d");
  return resized("upsample2d", x, how == Upsampling::kNearest ? ResampleMode::kNearest : ResampleMode::kLinear, height,
                 width, place);
}

Tensor upsample2d(Upsampling how, const Tensor& x, int64_t factor, CallSite place) {
  check(x.rank() == 4, "upsample2d: ", x, " is no [B, H, W, C]");
  return upsample2d(how, x, factor * x.dim(1), factor * x.dim(2), place);
}

}  // namespace lockstep
