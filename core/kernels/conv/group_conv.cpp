// Each group is a matrix product over patches of its channels. Where each channel is a group of its own (depthwise), a
// product would have one column: there channels go inside, and each line of them is one vector loop. The order of every
// sum follows from the shape alone.
#include "core/kernels/conv/group_conv.h"

#include "core/kernels/conv/patches.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

struct GroupSizes {
  explicit GroupSizes(const ConvArgs& a)
      : in(a.in_channels / a.groups), out(a.out_channels / a.groups), columns(a.kernel_h * a.kernel_w * in) {}
  int64_t in, out, columns;  // of a group: channels, and elements of a patch
};

// patches[p - p0, c - c0] for output pixels [p0, p1) and columns [c0, c1) of [kh, kw, channel of the group].
template <class Patch>
void gather_taps(const ConvArgs& a, int64_t group, int64_t p0, int64_t p1, int64_t c0, int64_t c1, Patch* patches) {
  const int64_t C = a.in_channels / a.groups;
  Patch* line = patches;
  for_pixels(a, p0, p1, [&](int64_t image, int64_t oy, int64_t ox) {
    for (int64_t c = c0; c < c1;) {
      const int64_t tap = c / C, ch = c % C, n = C - ch < c1 - c ? C - ch : c1 - c;
      const int64_t y = oy * a.stride + tap / a.kernel_w * a.dilation - a.padding,
                    x = ox * a.stride + tap % a.kernel_w * a.dilation - a.padding;
      if (y < 0 || y >= a.height || x < 0 || x >= a.width)
        for (int64_t i = 0; i < n; ++i) line[i] = Patch(0);
      else copy_run(a.x, a.x_dtype, ((image * a.height + y) * a.width + x) * a.in_channels + group * C + ch, n, line);
      line += n;
      c += n;
    }
  });
}

// dx += the patch of one output pixel, of all columns. dx is its image.
template <class T>
void scatter_taps(const ConvArgs& a, int64_t group, int64_t oy, int64_t ox, const T* patch, T* dx) {
  const int64_t C = a.in_channels / a.groups;
  for (int64_t tap = 0; tap < a.kernel_h * a.kernel_w; ++tap, patch += C) {
    const int64_t y = oy * a.stride + tap / a.kernel_w * a.dilation - a.padding,
                  x = ox * a.stride + tap % a.kernel_w * a.dilation - a.padding;
    if (y < 0 || y >= a.height || x < 0 || x >= a.width) continue;
    T* to = dx + (y * a.width + x) * a.in_channels + group * C;
#pragma GCC ivdep
    for (int64_t c = 0; c < C; ++c) to[c] += patch[c];
  }
}

template <class T, class Patch>
void product_conv(Parallel& parallel, const ConvArgs& a) {
  const GroupSizes s(a);
  auto body = [&](int64_t begin, int64_t end) {
    const int64_t most = pixels_at_once<Patch>(s.columns, end - begin);
    auto* patches =
        static_cast<Patch*>(parallel.scratch(kPatches, most * s.columns * static_cast<int64_t>(sizeof(Patch))));
    for (int64_t p = begin; p < end; p += most) {
      const int64_t pixels = end - p < most ? end - p : most;
      for (int64_t group = 0; group < a.groups; ++group) {
        gather_taps(a, group, p, p + pixels, 0, s.columns, patches);
        GemmArgs g;
        g.m = pixels, g.n = s.out, g.k = s.columns;
        g.a = patch_matrix(patches, s.columns);
        g.b = block_of({a.weight, a.weight_dtype, 1, s.columns, 0}, 0, group * s.out);
        g.c = block_of({a.y, a.y_dtype, a.out_channels, 1, 0}, p, group * s.out);
        if (a.bias) g.bias = static_cast<const char*>(a.bias) + group * s.out * size_of(a.bias_dtype);
        g.bias_dtype = a.bias_dtype;
        gemm_serial<T>(parallel, g);
      }
    }
  };
  parallel.run(pixels_of(a), 64, body);
}

template <class T>
void product_backward_input(Parallel& parallel, const ConvArgs& a) {
  const GroupSizes s(a);
  const int64_t of_image = a.out_height * a.out_width, image_size = a.height * a.width * a.in_channels;
  const bool direct = a.x_dtype == kTypeOf<T>;
  auto body = [&](int64_t begin, int64_t end) {
    const int64_t most = pixels_at_once<T>(s.columns, of_image);
    T* patches = static_cast<T*>(
        parallel.scratch(kPatches, (most * s.columns + (direct ? 0 : image_size)) * static_cast<int64_t>(sizeof(T))));
    for (int64_t image = begin; image < end; ++image) {
      T* dx = direct ? static_cast<T*>(a.x) + image * image_size : patches + most * s.columns;
      if (!a.accumulate) memset(dx, 0, static_cast<size_t>(image_size) * sizeof(T));
      else if (!direct) load_run<T>(a.x, a.x_dtype, image * image_size, 1, image_size, dx);
      for (int64_t p = image * of_image; p < (image + 1) * of_image; p += most) {
        const int64_t left = (image + 1) * of_image - p, pixels = left < most ? left : most;
        for (int64_t group = 0; group < a.groups; ++group) {
          GemmArgs g;
          g.m = pixels, g.n = s.columns, g.k = s.out;
          g.a = block_of({a.y, a.y_dtype, a.out_channels, 1, 0}, p, group * s.out);
          g.b = block_of({a.weight, a.weight_dtype, s.columns, 1, 0}, group * s.out, 0);
          g.c = patch_matrix(patches, s.columns);
          gemm_serial<T>(parallel, g);
          const T* patch = patches;
          for_pixels(a, p, p + pixels, [&](int64_t, int64_t oy, int64_t ox) {
            scatter_taps<T>(a, group, oy, ox, patch, dx);
            patch += s.columns;
          });
        }
      }
      if (!direct) store_run<T>(a.x, a.x_dtype, image * image_size, 1, image_size, dx);
    }
  };
  parallel.run(a.images, 1, body);
}

template <class T, class Patch>
void product_backward_weight(Parallel& parallel, const ConvArgs& a) {
  const GroupSizes s(a);
  const int64_t all = pixels_of(a);
  // Blocks of weights: a group each, or, where groups are fewer than threads, some columns of a group.
  const int64_t wanted = (parallel.threads() + a.groups - 1) / a.groups;
  const int64_t cols = ((s.columns + wanted - 1) / wanted + 15) / 16 * 16, cuts = (s.columns + cols - 1) / cols;
  const bool direct = a.weight_dtype == kTypeOf<T>;
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t group = item / cuts, c0 = item % cuts * cols, c1 = c0 + cols < s.columns ? c0 + cols : s.columns,
                    width = c1 - c0, most = pixels_at_once<Patch>(width, all);
      // Where the gradient is stored in another type, its sums are held in T until the last pixel.
      const int64_t of_sums = direct ? 0 : s.out * width;
      T* sums = static_cast<T*>(parallel.scratch(
          kPatches, of_sums * static_cast<int64_t>(sizeof(T)) + most * width * static_cast<int64_t>(sizeof(Patch))));
      auto* patches = reinterpret_cast<Patch*>(sums + of_sums);
      const Matrix gradient = block_of({a.weight, a.weight_dtype, s.columns, 1, 0}, group * s.out, c0);
      if (!direct && a.accumulate)
        for (int64_t r = 0; r < s.out; ++r)
          load_run<T>(gradient.data, gradient.dtype, r * s.columns, 1, width, sums + r * width);
      for (int64_t p = 0; p < all; p += most) {
        const int64_t pixels = all - p < most ? all - p : most;
        gather_taps(a, group, p, p + pixels, c0, c1, patches);
        GemmArgs g;
        g.m = s.out, g.n = width, g.k = pixels;
        const Matrix dy = block_of({a.y, a.y_dtype, a.out_channels, 1, 0}, p, group * s.out);
        g.a = {dy.data, dy.dtype, 1, a.out_channels, 0};
        g.b = patch_matrix(patches, width);
        g.c = direct ? gradient : patch_matrix(sums, width);
        g.accumulate = a.accumulate || p > 0;
        gemm_serial<T>(parallel, g);
      }
      if (!direct)
        for (int64_t r = 0; r < s.out; ++r)
          store_run<T>(gradient.data, gradient.dtype, r * s.columns, 1, width, sums + r * width);
    }
  };
  parallel.run(a.groups * cuts, 1, body);
}

bool is_depthwise(const ConvArgs& a) { return a.groups == a.in_channels && a.groups == a.out_channels; }

// Images on one side of a depthwise convolution.
struct DepthwiseSide {
  void* data;
  DType dtype;
  int64_t height, width;
};

// Along one dimension, the place of the source that the tap joins with a place of the target, or -1. `back`: from the
// output to the input.
int64_t source_of(const ConvArgs& a, bool back, int64_t target, int64_t tap, int64_t extent) {
  int64_t at = back ? target + a.padding - tap * a.dilation : target * a.stride + tap * a.dilation - a.padding;
  if (back && at % a.stride != 0) return -1;
  if (back) at /= a.stride;
  return at >= 0 && at < extent ? at : -1;
}

// Each pixel of the target: the sum over taps of source times weight, and the bias.
template <class T>
void depthwise(Parallel& parallel, const ConvArgs& a, bool back, const DepthwiseSide& source,
               const DepthwiseSide& target) {
  constexpr int64_t kBlock = 64;
  const int64_t C = a.in_channels, taps = a.kernel_h * a.kernel_w, of_line = source.width * C;
  const bool direct = source.dtype == kTypeOf<T>;
  auto body = [&](int64_t begin, int64_t end) {
    T* weights = static_cast<T*>(parallel.scratch(
        kPatches, ((taps + 2) * C + (direct ? 0 : a.kernel_h * of_line)) * static_cast<int64_t>(sizeof(T))));
    T *bias = weights + taps * C, *sums = bias + C, *lines = sums + C;
    for (int64_t tap = 0; tap < taps; ++tap) load_run<T>(a.weight, a.weight_dtype, tap, taps, C, weights + tap * C);
    if (a.bias) load_run<T>(a.bias, a.bias_dtype, 0, 1, C, bias);
    for (int64_t item = begin; item < end; ++item) {  // of [images, lines of the target]
      const int64_t image = item / target.height, ty = item % target.height;
      const auto line_at = [&](int64_t sy) { return (image * source.height + sy) * of_line; };
      if (!direct)
        for (int64_t ky = 0; ky < a.kernel_h; ++ky)
          if (const int64_t sy = source_of(a, back, ty, ky, source.height); sy >= 0)
            load_run<T>(source.data, source.dtype, line_at(sy), 1, of_line, lines + ky * of_line);
      for (int64_t tx = 0; tx < target.width; ++tx) {
        const int64_t to = (item * target.width + tx) * C;
        if (a.accumulate) load_run<T>(target.data, target.dtype, to, 1, C, sums);
        else memset(sums, 0, static_cast<size_t>(C) * sizeof(T));
        for (int64_t c0 = 0; c0 < C; c0 += kBlock) {
          alignas(64) T sum[kBlock];
          const int64_t n = C - c0 < kBlock ? C - c0 : kBlock;
          memcpy(sum, sums + c0, static_cast<size_t>(n) * sizeof(T));
          for (int64_t ky = 0; ky < a.kernel_h; ++ky) {
            const int64_t sy = source_of(a, back, ty, ky, source.height);
            if (sy < 0) continue;
            const T* line = direct ? static_cast<const T*>(source.data) + line_at(sy) : lines + ky * of_line;
            for (int64_t kx = 0; kx < a.kernel_w; ++kx) {
              const int64_t sx = source_of(a, back, tx, kx, source.width);
              if (sx < 0) continue;
              const T *s = line + sx * C + c0, *w = weights + (ky * a.kernel_w + kx) * C + c0;
              if (n == kBlock) {
#pragma GCC ivdep
                for (int64_t c = 0; c < kBlock; ++c) sum[c] = fused(s[c], w[c], sum[c]);
              } else {
                for (int64_t c = 0; c < n; ++c) sum[c] = fused(s[c], w[c], sum[c]);
              }
            }
          }
          memcpy(sums + c0, sum, static_cast<size_t>(n) * sizeof(T));
        }
        if (a.bias)
          for (int64_t c = 0; c < C; ++c) sums[c] += bias[c];
        store_run<T>(target.data, target.dtype, to, 1, C, sums);
      }
    }
  };
  parallel.run(a.images * target.height, 16384 / (target.width * C * taps + 1) + 1, body);
}

// Some channels of a line of pixels in type T: in place, or converted into `room`; `stride` elements from one pixel to
// the next.
template <class T>
struct ChannelLine {
  static constexpr int64_t kMost = 32;  // a loop of 16 would be unrolled before it is vectorised
  ChannelLine(const void* data, DType dtype, int64_t at, int64_t pixels, int64_t channels, int64_t n, T* room)
      : first(room), stride(kMost) {
    if (dtype == kTypeOf<T>) first = static_cast<const T*>(data) + at, stride = channels;
    else
      for (int64_t x = 0; x < pixels; ++x) load_run<T>(data, dtype, at + x * channels, 1, n, room + x * kMost);
  }
  const T* first;
  int64_t stride;
};

// sum[c] += the sum over pixels of g times x, `step` pixels of x for one of g, in n channels.
template <class T>
void add_products(const ChannelLine<T>& g, int64_t g0, const ChannelLine<T>& x, int64_t x0, int64_t step,
                  int64_t pixels, int64_t n, T* sum) {
  constexpr int64_t kMost = ChannelLine<T>::kMost;
  alignas(64) T line[kMost] = {};
  const T *gs = g.first + g0 * g.stride, *xs = x.first + x0 * x.stride;
  for (int64_t i = 0; i < pixels; ++i, gs += g.stride, xs += step * x.stride) {
    if (n == kMost) {
#pragma GCC ivdep
      for (int64_t c = 0; c < kMost; ++c) line[c] = fused(gs[c], xs[c], line[c]);
    } else {
      for (int64_t c = 0; c < n; ++c) line[c] = fused(gs[c], xs[c], line[c]);
    }
  }
  for (int64_t c = 0; c < kMost; ++c) sum[c] += line[c];
}

// dw[c, tap] = the sum over output pixels of dy[c] times the input under the tap; lines of the output are summed by
// themselves, then joined in order.
template <class T>
void depthwise_backward_weight(Parallel& parallel, const ConvArgs& a) {
  constexpr int64_t kBlock = ChannelLine<T>::kMost;
  const int64_t C = a.in_channels, taps = a.kernel_h * a.kernel_w;
  auto body = [&](int64_t begin, int64_t end) {
    T* total = static_cast<T*>(
        parallel.scratch(kPatches, (taps + a.out_width + a.width) * kBlock * static_cast<int64_t>(sizeof(T))));
    T *g_room = total + taps * kBlock, *x_room = g_room + a.out_width * kBlock;
    for (int64_t c0 = begin * kBlock; c0 < end * kBlock && c0 < C; c0 += kBlock) {
      const int64_t n = C - c0 < kBlock ? C - c0 : kBlock;
      memset(total, 0, static_cast<size_t>(taps * kBlock) * sizeof(T));
      for (int64_t line = 0; line < a.images * a.out_height; ++line) {
        const ChannelLine<T> g(a.y, a.y_dtype, line * a.out_width * C + c0, a.out_width, C, n, g_room);
        for (int64_t ky = 0; ky < a.kernel_h; ++ky) {
          const int64_t y = source_of(a, false, line % a.out_height, ky, a.height);
          if (y < 0) continue;
          const int64_t row = line / a.out_height * a.height + y;
          const ChannelLine<T> x(a.x, a.x_dtype, row * a.width * C + c0, a.width, C, n, x_room);
          for (int64_t kx = 0; kx < a.kernel_w; ++kx) {
            int64_t first = 0, last = a.out_width;  // pixels of the output whose tap lies in the image
            while (first < last && source_of(a, false, first, kx, a.width) < 0) ++first;
            while (last > first && source_of(a, false, last - 1, kx, a.width) < 0) --last;
            if (first < last)
              add_products(g, first, x, source_of(a, false, first, kx, a.width), a.stride, last - first, n,
                           total + (ky * a.kernel_w + kx) * kBlock);
          }
        }
      }
      for (int64_t c = 0; c < n; ++c)
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t at = (c0 + c) * taps + tap;
          const T before = a.accumulate ? load_element<T>(a.weight, a.weight_dtype, at) : T(0);
          store_element<T>(a.weight, a.weight_dtype, at, before + total[tap * kBlock + c]);
        }
    }
  };
  parallel.run((C + kBlock - 1) / kBlock, 1, body);
}

template <class T>
void depthwise_forward(Parallel& parallel, const ConvArgs& a) {
  depthwise<T>(parallel, a, false, {a.x, a.x_dtype, a.height, a.width}, {a.y, a.y_dtype, a.out_height, a.out_width});
}
template <class T>
void depthwise_backward_input(Parallel& parallel, const ConvArgs& a) {
  depthwise<T>(parallel, a, true, {a.y, a.y_dtype, a.out_height, a.out_width}, {a.x, a.x_dtype, a.height, a.width});
}

bool is_all_bf16(DType a, DType b) { return a == DType::kBFloat16 && b == DType::kBFloat16; }

}  // namespace

void group_conv(Parallel& parallel, const ConvArgs& a) {
  const bool wide = a.x_dtype == DType::kFloat64;
  if (is_depthwise(a)) return wide ? depthwise_forward<double>(parallel, a) : depthwise_forward<float>(parallel, a);
  if (wide) product_conv<double, double>(parallel, a);
  else if (is_all_bf16(a.x_dtype, a.weight_dtype)) product_conv<float, uint16_t>(parallel, a);
  else product_conv<float, float>(parallel, a);
}

void group_conv_backward_input(Parallel& parallel, const ConvArgs& a) {
  const bool wide = a.y_dtype == DType::kFloat64;
  if (is_depthwise(a))
    return wide ? depthwise_backward_input<double>(parallel, a) : depthwise_backward_input<float>(parallel, a);
  wide ? product_backward_input<double>(parallel, a) : product_backward_input<float>(parallel, a);
}

void group_conv_backward_weight(Parallel& parallel, const ConvArgs& a) {
  const bool wide = a.x_dtype == DType::kFloat64;
  if (pixels_of(a) == 0) return;
  if (is_depthwise(a))
    return wide ? depthwise_backward_weight<double>(parallel, a) : depthwise_backward_weight<float>(parallel, a);
  if (wide) product_backward_weight<double, double>(parallel, a);
  else if (is_all_bf16(a.x_dtype, a.y_dtype)) product_backward_weight<float, uint16_t>(parallel, a);
  else product_backward_weight<float, float>(parallel, a);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
