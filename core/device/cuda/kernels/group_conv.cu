#include "core/device/cuda/kernels/group_conv.h"

#include "core/device/cuda/kernels/launch.h"
#include "core/kernels/stage.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;

// Element i of images [images, height, width, channels].
struct Pixel {
  int64_t image, y, x, c;
};
__device__ inline Pixel pixel_of(int64_t i, int64_t height, int64_t width, int64_t channels) {
  const int64_t line = i / channels / width;
  return {line / height, line % height, i / channels % width, i % channels};
}

// Taps in order, and in each the channels of the group; then the bias.
template <class T>
__global__ void __launch_bounds__(kThreads) group_conv_kernel(ConvArgs a, int64_t items) {
  const int64_t in = a.in_channels / a.groups, out = a.out_channels / a.groups;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < items; i += step) {
    const Pixel p = pixel_of(i, a.out_height, a.out_width, a.out_channels);
    T sum = T(0);
    for (int64_t ky = 0; ky < a.kernel_h; ++ky) {
      const int64_t y = p.y * a.stride + ky * a.dilation - a.padding;
      if (y < 0 || y >= a.height) continue;
      for (int64_t kx = 0; kx < a.kernel_w; ++kx) {
        const int64_t x = p.x * a.stride + kx * a.dilation - a.padding;
        if (x < 0 || x >= a.width) continue;
        const int64_t from = ((p.image * a.height + y) * a.width + x) * a.in_channels + p.c / out * in,
                      weight = ((p.c * a.kernel_h + ky) * a.kernel_w + kx) * in;
        for (int64_t c = 0; c < in; ++c)
          sum = fused(load_element<T>(a.x, a.x_dtype, from + c), load_element<T>(a.weight, a.weight_dtype, weight + c),
                      sum);
      }
    }
    if (a.bias) sum += load_element<T>(a.bias, a.bias_dtype, p.c);
    store_element<T>(a.y, a.y_dtype, i, sum);
  }
}

// Taps in order, and in each the output channels of the group.
template <class T>
__global__ void __launch_bounds__(kThreads) group_input_kernel(ConvArgs a, int64_t items) {
  const int64_t in = a.in_channels / a.groups, out = a.out_channels / a.groups;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < items; i += step) {
    const Pixel p = pixel_of(i, a.height, a.width, a.in_channels);
    const int64_t first = p.c / in * out;
    T sum = a.accumulate ? load_element<T>(a.x, a.x_dtype, i) : T(0);
    for (int64_t ky = 0; ky < a.kernel_h; ++ky) {
      const int64_t y = p.y + a.padding - ky * a.dilation, oy = y / a.stride;
      if (y < 0 || oy * a.stride != y || oy >= a.out_height) continue;
      for (int64_t kx = 0; kx < a.kernel_w; ++kx) {
        const int64_t x = p.x + a.padding - kx * a.dilation, ox = x / a.stride;
        if (x < 0 || ox * a.stride != x || ox >= a.out_width) continue;
        const int64_t from = ((p.image * a.out_height + oy) * a.out_width + ox) * a.out_channels;
        for (int64_t o = first; o < first + out; ++o) {
          const int64_t weight = ((o * a.kernel_h + ky) * a.kernel_w + kx) * in + p.c % in;
          sum =
              fused(load_element<T>(a.y, a.y_dtype, from + o), load_element<T>(a.weight, a.weight_dtype, weight), sum);
        }
      }
    }
    store_element<T>(a.x, a.x_dtype, i, sum);
  }
}

// A block takes one tap of one input channel of up to 32 output channels. Its eight rows of threads take the lines of
// output pixels in turn; a line is summed by itself.
constexpr int kAcross = 32, kLinesAtOnce = kThreads / kAcross;

template <class T>
__global__ void __launch_bounds__(kThreads) group_weight_kernel(ConvArgs a) {
  __shared__ T shared[kThreads];
  const int64_t in = a.in_channels / a.groups, out = a.out_channels / a.groups, taps = a.kernel_h * a.kernel_w;
  const int64_t part = blockIdx.x % (taps * in), tap = part / in, ci = part % in;
  const int64_t o = blockIdx.x / (taps * in) * kAcross + threadIdx.x % kAcross;
  const int64_t ky = tap / a.kernel_w, kx = tap % a.kernel_w;
  T total = T(0);
  if (o < a.out_channels)
    for (int64_t line = threadIdx.x / kAcross; line < a.images * a.out_height; line += kLinesAtOnce) {
      const int64_t image = line / a.out_height, y = line % a.out_height * a.stride + ky * a.dilation - a.padding;
      if (y < 0 || y >= a.height) continue;
      T sum = T(0);
      for (int64_t ox = 0; ox < a.out_width; ++ox) {
        const int64_t x = ox * a.stride + kx * a.dilation - a.padding;
        if (x < 0 || x >= a.width) continue;
        const int64_t from = ((image * a.height + y) * a.width + x) * a.in_channels + o / out * in + ci,
                      at = (line * a.out_width + ox) * a.out_channels + o;
        sum = fused(load_element<T>(a.y, a.y_dtype, at), load_element<T>(a.x, a.x_dtype, from), sum);
      }
      total += sum;
    }
  shared[threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.x >= kAcross || o >= a.out_channels) return;
  for (int l = 1; l < kLinesAtOnce; ++l) total += shared[l * kAcross + threadIdx.x];
  const int64_t to = (o * taps + tap) * in + ci;
  if (a.accumulate) total = load_element<T>(a.weight, a.weight_dtype, to) + total;
  store_element<T>(a.weight, a.weight_dtype, to, total);
}

}  // namespace

void group_conv(Parallel& parallel, const ConvArgs& a) {
  CudaQueue& queue = cuda_queue(parallel);
  const int64_t items = a.images * a.out_height * a.out_width * a.out_channels;
  const int64_t blocks = blocks_for(queue, items, kThreads);
  if (a.x_dtype == DType::kFloat64) launch(group_conv_kernel<double>, queue, blocks, kThreads, a, items);
  else launch(group_conv_kernel<float>, queue, blocks, kThreads, a, items);
}

void group_conv_backward_input(Parallel& parallel, const ConvArgs& a) {
  CudaQueue& queue = cuda_queue(parallel);
  const int64_t items = a.images * a.height * a.width * a.in_channels;
  const int64_t blocks = blocks_for(queue, items, kThreads);
  if (a.y_dtype == DType::kFloat64) launch(group_input_kernel<double>, queue, blocks, kThreads, a, items);
  else launch(group_input_kernel<float>, queue, blocks, kThreads, a, items);
}

void group_conv_backward_weight(Parallel& parallel, const ConvArgs& a) {
  CudaQueue& queue = cuda_queue(parallel);
  const int64_t tiles = (a.out_channels + kAcross - 1) / kAcross;
  const int64_t blocks = tiles * a.kernel_h * a.kernel_w * (a.in_channels / a.groups);
  if (a.x_dtype == DType::kFloat64) launch(group_weight_kernel<double>, queue, blocks, kThreads, a);
  else launch(group_weight_kernel<float>, queue, blocks, kThreads, a);
}

}  // namespace lockstep::cuda
