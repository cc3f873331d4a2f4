#include "core/device/cuda/kernels/patch_conv.h"

#include <algorithm>

#include "core/base/partition.h"
#include "core/device/cuda/kernels/group_conv.h"
#include "core/device/cuda/kernels/launch.h"
#include "core/kernels/kernels.h"
#include "core/kernels/stage.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
// Memory for patches. Fixed, so that the images of a product, and with them the order of a weight gradient's sum,
// follow from the shape.
constexpr int64_t kPatchBytes = int64_t(64) << 20;
constexpr int kSlot = 5;  // cuDNN's workspace: the products in between use slots 0 to 4

HD inline uint32_t to_32(int64_t n) { return static_cast<uint32_t>(n); }

// patches[p, tap, c] = x at output pixel p of `images` images, 0 outside; an element a thread, copied as it is.
template <class E>
__global__ void __launch_bounds__(kThreads) gather_kernel(ConvArgs a, const E* x, int64_t images, E* patches) {
  const uint32_t channels = to_32(a.in_channels), kw = to_32(a.kernel_w), kh = to_32(a.kernel_h),
                 width = to_32(a.out_width), height = to_32(a.out_height);
  const uint32_t n = to_32(images) * height * width * kh * kw * channels;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const uint32_t tap = i / channels, row = tap / kw, pixel = row / kh, line = pixel / width;
    const int64_t c = i - tap * channels, kx = tap - row * kw, ky = row - pixel * kh, ox = pixel - line * width,
                  oy = line % height, image = line / height;
    const int64_t y = oy * a.stride + ky * a.dilation - a.padding, at = ox * a.stride + kx * a.dilation - a.padding;
    const bool inside = y >= 0 && y < a.height && at >= 0 && at < a.width;
    patches[i] = inside ? x[((image * a.height + y) * a.width + at) * a.in_channels + c] : E(0);
  }
}

// The transpose: x[i] (+)= the sum over the patches that hold pixel i, taps in order; an element of x a thread.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(ConvArgs a, const T* patches, int64_t first_image, int64_t images) {
  const uint32_t channels = to_32(a.in_channels), width = to_32(a.width), height = to_32(a.height);
  const uint32_t n = to_32(images) * height * width * channels;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const uint32_t pixel = i / channels, line = pixel / width;
    const int64_t c = i - pixel * channels, at = pixel - line * width, y = line % height, image = line / height;
    const int64_t to = first_image * a.height * a.width * a.in_channels + i;
    T sum = a.accumulate ? load_element<T>(a.x, a.x_dtype, to) : T(0);
    for (int64_t ky = 0; ky < a.kernel_h; ++ky) {
      const int64_t from_y = y + a.padding - ky * a.dilation, oy = from_y / a.stride;
      if (from_y < 0 || oy * a.stride != from_y || oy >= a.out_height) continue;
      for (int64_t kx = 0; kx < a.kernel_w; ++kx) {
        const int64_t from_x = at + a.padding - kx * a.dilation, ox = from_x / a.stride;
        if (from_x < 0 || ox * a.stride != from_x || ox >= a.out_width) continue;
        const int64_t patch = (image * a.out_height + oy) * a.out_width + ox;
        sum += patches[((patch * a.kernel_h + ky) * a.kernel_w + kx) * a.in_channels + c];
      }
    }
    store_element<T>(a.x, a.x_dtype, to, sum);
  }
}

void* element(void* data, DType dtype, int64_t i) { return static_cast<char*>(data) + i * size_of(dtype); }

struct Sizes {
  explicit Sizes(const ConvArgs& a)
      : pixels(a.out_height * a.out_width),
        taps(a.kernel_h * a.kernel_w * a.in_channels),
        image(a.height * a.width * a.in_channels) {
    // Kernels count in 32 bits; past the first image, kPatchBytes keeps them far below.
    check(pixels * taps < int64_t(1) << 31 && image < int64_t(1) << 31, "convolution of images of ", image,
          " elements, with ", pixels * taps, " in their patches");
  }
  int64_t pixels, taps, image;  // of an image: output pixels, elements of a patch, elements
  int64_t images_at_once(int64_t element_bytes) const {
    const int64_t fit = kPatchBytes / (std::max(pixels * taps, image) * element_bytes);
    return fit > 1 ? fit : 1;
  }
};

// run(first image, how many) over all images, a few at a time.
template <class Run>
void in_groups(int64_t images, int64_t at_once, Run run) {
  for (int64_t first = 0; first < images; first += at_once)
    run(first, images - first < at_once ? images - first : at_once);
}

template <class E>
void gather_as(CudaQueue& queue, const ConvArgs& a, int64_t first, int64_t images, void* patches) {
  const Sizes s(a);
  const E* x = static_cast<const E*>(a.x) + first * s.image;
  launch(gather_kernel<E>, queue, blocks_for(queue, images * s.pixels * s.taps, kThreads), kThreads, a, x, images,
         static_cast<E*>(patches));
}

void gather(CudaQueue& queue, const ConvArgs& a, int64_t first, int64_t images, void* patches) {
  switch (size_of(a.x_dtype)) {
    case 2: return gather_as<uint16_t>(queue, a, first, images, patches);
    case 4: return gather_as<uint32_t>(queue, a, first, images, patches);
    default: return gather_as<uint64_t>(queue, a, first, images, patches);
  }
}

}  // namespace

void patch_conv(Parallel& parallel, const ConvArgs& a) {
  if (a.groups > 1) return group_conv(parallel, a);
  CudaQueue& queue = cuda_queue(parallel);
  const Sizes s(a);
  const int64_t at_once = s.images_at_once(size_of(a.x_dtype));
  in_groups(a.images, at_once, [&](int64_t first, int64_t images) {
    void* patches = queue.scratch_memory(kSlot, at_once * s.pixels * s.taps * size_of(a.x_dtype));
    gather(queue, a, first, images, patches);
    GemmArgs g;
    g.m = images * s.pixels, g.n = a.out_channels, g.k = s.taps;
    g.a = {patches, a.x_dtype, s.taps, 1, 0};
    g.b = {a.weight, a.weight_dtype, 1, s.taps, 0};
    g.c = {element(a.y, a.y_dtype, first * s.pixels * a.out_channels), a.y_dtype, a.out_channels, 1, 0};
    g.bias = a.bias, g.bias_dtype = a.bias_dtype;
    queue.kernels().gemm(queue, g);
  });
}

void patch_conv_backward_input(Parallel& parallel, const ConvArgs& a) {
  if (a.groups > 1) return group_conv_backward_input(parallel, a);
  CudaQueue& queue = cuda_queue(parallel);
  const Sizes s(a);
  const bool wide = a.y_dtype == DType::kFloat64;
  const DType dtype = wide ? DType::kFloat64 : DType::kFloat32;
  const int64_t at_once = s.images_at_once(size_of(dtype));
  in_groups(a.images, at_once, [&](int64_t first, int64_t images) {
    void* patches = queue.scratch_memory(kSlot, at_once * s.pixels * s.taps * size_of(dtype));
    GemmArgs g;
    g.m = images * s.pixels, g.n = s.taps, g.k = a.out_channels;
    g.a = {element(a.y, a.y_dtype, first * s.pixels * a.out_channels), a.y_dtype, a.out_channels, 1, 0};
    g.b = {a.weight, a.weight_dtype, s.taps, 1, 0};
    g.c = {patches, dtype, s.taps, 1, 0};
    queue.kernels().gemm(queue, g);
    const int64_t blocks = blocks_for(queue, images * s.image, kThreads);
    if (wide) launch(scatter_kernel<double>, queue, blocks, kThreads, a, static_cast<double*>(patches), first, images);
    else launch(scatter_kernel<float>, queue, blocks, kThreads, a, static_cast<float*>(patches), first, images);
  });
}

void patch_conv_backward_weight(Parallel& parallel, const ConvArgs& a) {
  if (a.groups > 1) return group_conv_backward_weight(parallel, a);
  CudaQueue& queue = cuda_queue(parallel);
  const Sizes s(a);
  const bool wide = a.x_dtype == DType::kFloat64;
  const DType sum_dtype = wide ? DType::kFloat64 : DType::kFloat32;
  const int64_t at_once = s.images_at_once(size_of(a.x_dtype)), weights = a.out_channels * s.taps;
  // Where several products add up to a narrow gradient, their sum is kept apart, and rounded once.
  const bool apart = a.images > at_once && a.weight_dtype != sum_dtype;
  const int64_t sum_bytes = apart ? round_up(weights * size_of(sum_dtype), 256) : 0;
  char* const sums =
      static_cast<char*>(queue.scratch_memory(kSlot, sum_bytes + at_once * s.pixels * s.taps * size_of(a.x_dtype)));
  char* const patches = sums + sum_bytes;
  const Matrix gradient{apart ? sums : a.weight, apart ? sum_dtype : a.weight_dtype, s.taps, 1, 0};
  GemmArgs g;
  g.m = a.out_channels, g.n = s.taps;
  g.a.dtype = a.y_dtype, g.b.dtype = a.x_dtype;
  g.c = gradient;
  g.accumulate = a.accumulate && !apart;
  if (a.images == 0) queue.kernels().gemm(queue, g);  // a sum of nothing
  in_groups(a.images, at_once, [&](int64_t first, int64_t images) {
    gather(queue, a, first, images, patches);
    g.k = images * s.pixels;
    g.a = {element(a.y, a.y_dtype, first * s.pixels * a.out_channels), a.y_dtype, 1, a.out_channels, 0};
    g.b = {patches, a.x_dtype, s.taps, 1, 0};
    queue.kernels().gemm(queue, g);
    g.accumulate = true;
  });
  if (!apart) return;
  PointwiseArgs p;
  p.numel = weights, p.dims = 1, p.sizes[0] = weights;
  p.outs = 1, p.ins = a.accumulate ? 2 : 1;
  p.out[0] = {a.weight, a.weight_dtype, {1}};
  p.in[0] = {sums, sum_dtype, {1}};
  p.in[1] = p.out[0];
  queue.kernels().pointwise(queue, a.accumulate ? PointwiseOp::kAdd : PointwiseOp::kCopy, p);
}

}  // namespace lockstep::cuda
