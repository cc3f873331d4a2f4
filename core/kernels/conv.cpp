// Convolution and max pooling of NHWC images. A convolution is a matrix product over patches, of as many output pixels
// at a time as stay in a cache, be they of one image or of several; weight gradients add pixels in order, each thread
// owning a block of weights. Those with groups or dilation are in group_conv.cpp.
#include "core/kernels/group_conv.h"
#include "core/kernels/patches.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

// patches[p - p0, c - c0] for output pixels [p0, p1) and columns [c0, c1) of [kh, kw, channel].
template <class Patch>
void gather_patches(const ConvArgs& a, int64_t p0, int64_t p1, int64_t c0, int64_t c1, Patch* patches) {
  const int64_t C = a.in_channels;
  Patch* line = patches;
  for_pixels(a, p0, p1, [&](int64_t image, int64_t oy, int64_t ox) {
    const int64_t base = image * a.height * a.width * C;
    int64_t c = c0;
    const int64_t top = oy * a.stride - a.padding, left = ox * a.stride - a.padding, row = a.kernel_w * C;
    if (c0 == 0 && c1 == a.kernel_h * row && top >= 0 && top + a.kernel_h <= a.height && left >= 0 &&
        left + a.kernel_w <= a.width) {  // nothing is cut off
      for (int64_t ky = 0; ky < a.kernel_h; ++ky, line += row)
        copy_run(a.x, a.x_dtype, base + ((top + ky) * a.width + left) * C, row, line);
      return;
    }
    while (c < c1) {
      // One stretch: a kernel row, as far as it stays inside the image.
      const int64_t tap = c / C, ky = tap / a.kernel_w, kx = tap % a.kernel_w, ch = c % C;
      const int64_t y = oy * a.stride + ky - a.padding, x = ox * a.stride + kx - a.padding;
      int64_t end = (ky + 1) * a.kernel_w * C;
      if (end > c1) end = c1;
      if (y < 0 || y >= a.height) {
        for (; c < end; ++c) *line++ = Patch(0);
        continue;
      }
      if (x < 0 || x >= a.width) {  // this tap only
        const int64_t tap_end = (tap + 1) * C < end ? (tap + 1) * C : end;
        for (; c < tap_end; ++c) *line++ = Patch(0);
        continue;
      }
      const int64_t inside = (a.width - x) * C - ch;
      const int64_t n = end - c < inside ? end - c : inside;
      copy_run(a.x, a.x_dtype, base + (y * a.width + x) * C + ch, n, line);
      line += n;
      c += n;
    }
  });
}

// dx += the patch of one output pixel, of all columns. dx is its image.
template <class T>
void scatter_patch(const ConvArgs& a, int64_t oy, int64_t ox, const T* patch, T* dx) {
  const int64_t C = a.in_channels, row = a.kernel_w * C;
  for (int64_t ky = 0; ky < a.kernel_h; ++ky) {
    const T* line = patch + ky * row;
    const int64_t y = oy * a.stride + ky - a.padding, x = ox * a.stride - a.padding;
    if (y < 0 || y >= a.height) continue;
    const int64_t first = x < 0 ? -x * C : 0, last = x + a.kernel_w > a.width ? (a.width - x) * C : row;
    T* to = dx + (y * a.width + x) * C;
#pragma GCC ivdep
    for (int64_t i = first; i < last; ++i) to[i] += line[i];
  }
}

template <class T>
Matrix dense(const T* data, int64_t cols) {
  return {const_cast<T*>(data), kTypeOf<T>, cols, 1, 0};
}

template <class T, class Patch>
void conv_in(Parallel& parallel, const ConvArgs& a) {
  const int64_t taps = a.kernel_h * a.kernel_w * a.in_channels;
  auto body = [&](int64_t begin, int64_t end) {
    const int64_t most = pixels_at_once<Patch>(taps, end - begin);
    auto* patches = static_cast<Patch*>(parallel.scratch(kPatches, most * taps * static_cast<int64_t>(sizeof(Patch))));
    for (int64_t p = begin; p < end; p += most) {
      const int64_t pixels = end - p < most ? end - p : most;
      gather_patches(a, p, p + pixels, 0, taps, patches);
      GemmArgs g;
      g.m = pixels, g.n = a.out_channels, g.k = taps;
      g.a = patch_matrix(patches, taps);
      g.b = {a.weight, a.weight_dtype, 1, taps, 0};
      g.c = block_of({a.y, a.y_dtype, a.out_channels, 1, 0}, p, 0);
      g.bias = a.bias;
      g.bias_dtype = a.bias_dtype;
      gemm_serial<T>(parallel, g);
    }
  };
  parallel.run(pixels_of(a), 64, body);
}

template <class T>
void conv_backward_input_in(Parallel& parallel, const ConvArgs& a) {
  const int64_t of_image = a.out_height * a.out_width, taps = a.kernel_h * a.kernel_w * a.in_channels;
  const int64_t image_size = a.height * a.width * a.in_channels;
  const bool direct = a.x_dtype == kTypeOf<T>;
  auto body = [&](int64_t begin, int64_t end) {
    const int64_t first = begin * of_image, last = end * of_image, most = pixels_at_once<T>(taps, last - first);
    T* patches = static_cast<T*>(
        parallel.scratch(kPatches, (most * taps + (direct ? 0 : image_size)) * static_cast<int64_t>(sizeof(T))));
    T *dx = nullptr, *converted = patches + most * taps;
    for (int64_t p = first; p < last; p += most) {
      const int64_t pixels = last - p < most ? last - p : most;
      GemmArgs g;
      g.m = pixels, g.n = taps, g.k = a.out_channels;
      g.a = block_of({a.y, a.y_dtype, a.out_channels, 1, 0}, p, 0);
      g.b = {a.weight, a.weight_dtype, taps, 1, 0};
      g.c = dense(patches, taps);
      gemm_serial<T>(parallel, g);
      const T* patch = patches;
      for_pixels(a, p, p + pixels, [&](int64_t image, int64_t oy, int64_t ox) {
        if (oy == 0 && ox == 0) {
          dx = direct ? static_cast<T*>(a.x) + image * image_size : converted;
          if (!a.accumulate) memset(dx, 0, static_cast<size_t>(image_size) * sizeof(T));
          else if (!direct) load_run<T>(a.x, a.x_dtype, image * image_size, 1, image_size, dx);
        }
        scatter_patch<T>(a, oy, ox, patch, dx);
        patch += taps;
        if (!direct && oy + 1 == a.out_height && ox + 1 == a.out_width)
          store_run<T>(a.x, a.x_dtype, image * image_size, 1, image_size, dx);
      });
    }
  };
  parallel.run(a.images, 1, body);
}

template <class T, class Patch>
void conv_backward_weight_in(Parallel& parallel, const ConvArgs& a) {
  const int64_t all = pixels_of(a), taps = a.kernel_h * a.kernel_w * a.in_channels;
  if (all == 0) return;
  // Blocks of weights, one a thread: columns first (patches are then gathered once), output channels where columns are
  // few.
  const int64_t threads = parallel.threads();
  int64_t cuts = (taps + 15) / 16 < threads ? (taps + 15) / 16 : threads, rows_cut = (threads + cuts - 1) / cuts;
  if (rows_cut > a.out_channels) rows_cut = a.out_channels;
  const int64_t cols = ((taps + cuts - 1) / cuts + 15) / 16 * 16, rows = (a.out_channels + rows_cut - 1) / rows_cut;
  cuts = (taps + cols - 1) / cols;
  rows_cut = (a.out_channels + rows - 1) / rows;
  const bool direct = a.weight_dtype == kTypeOf<T>;
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t c0 = item % cuts * cols, c1 = c0 + cols < taps ? c0 + cols : taps, width = c1 - c0;
      const int64_t r0 = item / cuts * rows, r1 = r0 + rows < a.out_channels ? r0 + rows : a.out_channels;
      const int64_t most = pixels_at_once<Patch>(width, all);
      // Where the gradient is stored in another type, its sums are held in T until the last pixel.
      const int64_t of_sums = direct ? 0 : (r1 - r0) * width;
      T* sums = static_cast<T*>(parallel.scratch(
          kPatches, of_sums * static_cast<int64_t>(sizeof(T)) + most * width * static_cast<int64_t>(sizeof(Patch))));
      auto* patches = reinterpret_cast<Patch*>(sums + of_sums);
      const Matrix gradient = block_of({a.weight, a.weight_dtype, taps, 1, 0}, r0, c0);
      if (!direct && a.accumulate)
        for (int64_t r = 0; r < r1 - r0; ++r)
          load_run<T>(gradient.data, gradient.dtype, r * taps, 1, width, sums + r * width);
      for (int64_t p = 0; p < all; p += most) {
        const int64_t pixels = all - p < most ? all - p : most;
        gather_patches(a, p, p + pixels, c0, c1, patches);
        GemmArgs g;
        g.m = r1 - r0, g.n = width, g.k = pixels;
        const Matrix dy = block_of({a.y, a.y_dtype, a.out_channels, 1, 0}, p, r0);
        g.a = {dy.data, dy.dtype, 1, a.out_channels, 0};
        g.b = patch_matrix(patches, width);
        g.c = direct ? gradient : dense(sums, width);
        g.accumulate = a.accumulate || p > 0;
        gemm_serial<T>(parallel, g);
      }
      if (!direct)
        for (int64_t r = 0; r < r1 - r0; ++r)
          store_run<T>(gradient.data, gradient.dtype, r * taps, 1, width, sums + r * width);
    }
  };
  parallel.run(cuts * rows_cut, 1, body);
}

// The part of a window that lies in the image.
struct Window {
  int64_t y0, x0, y1, x1, top, left;
  int64_t across() const { return x1 - x0; }
  int64_t pixels() const { return (y1 - y0) * (x1 - x0); }
  int64_t index(const PoolArgs& a, int64_t y, int64_t x) const { return (y - top) * a.window + x - left; }
};
Window window_of(const PoolArgs& a, int64_t oy, int64_t ox) {
  const int64_t top = oy * a.stride - a.padding, left = ox * a.stride - a.padding;
  const int64_t bottom = top + a.window, right = left + a.window;
  return {top < 0 ? 0 : top,
          left < 0 ? 0 : left,
          bottom < a.height ? bottom : a.height,
          right < a.width ? right : a.width,
          top,
          left};
}

// Windows go outside, channels inside: each line of channels is one vector loop.
template <class T>
void max_pool_in(Parallel& parallel, const PoolArgs& a) {
  const int64_t C = a.channels, image_size = a.height * a.width * C;
  auto body = [&](int64_t begin, int64_t end) {
    T* x = static_cast<T*>(parallel.scratch(kPatches, (image_size + 2 * C) * static_cast<int64_t>(sizeof(T))));
    T *best = x + image_size, *where = best + C;
    for (int64_t image = begin; image < end; ++image) {
      const T* pixels = x;
      if (a.dtype == kTypeOf<T>) pixels = static_cast<const T*>(a.x) + image * image_size;
      else load_run<T>(a.x, a.dtype, image * image_size, 1, image_size, x);
      for (int64_t oy = 0; oy < a.out_height; ++oy)
        for (int64_t ox = 0; ox < a.out_width; ++ox) {
          const int64_t out = ((image * a.out_height + oy) * a.out_width + ox) * C;
          const Window in = window_of(a, oy, ox);
          const T* first = pixels + (in.y0 * a.width + in.x0) * C;
          const T at_first = static_cast<T>(in.index(a, in.y0, in.x0));
          for (int64_t c = 0; c < C; ++c) best[c] = first[c], where[c] = at_first;
          for (int64_t p = 1; p < in.pixels(); ++p) {
            const int64_t py = in.y0 + p / in.across(), px = in.x0 + p % in.across(), w = in.index(a, py, px);
            const T* at = pixels + (py * a.width + px) * C;
#pragma GCC ivdep
            for (int64_t c = 0; c < C; ++c) {
              const T v = at[c], b = best[c];
              const bool stays = v <= b;  // NaN wins
              best[c] = stays ? b : v;
              where[c] = stays ? where[c] : static_cast<T>(w);
            }
          }
          store_run<T>(a.y, a.dtype, out, 1, C, best);
          for (int64_t c = 0; c < C; ++c) a.index[out + c] = static_cast<uint8_t>(where[c]);
        }
    }
  };
  parallel.run(a.images, 1, body);
}

template <class T>
void max_pool_backward_in(Parallel& parallel, const PoolArgs& a) {
  const int64_t C = a.channels, image_size = a.height * a.width * C;
  auto body = [&](int64_t begin, int64_t end) {
    T* scratch = static_cast<T*>(parallel.scratch(kPatches, (image_size + 2 * C) * static_cast<int64_t>(sizeof(T))));
    T *line = scratch + image_size, *where = line + C;
    const bool direct = a.dtype == kTypeOf<T>;
    for (int64_t image = begin; image < end; ++image) {
      T* dx = direct ? static_cast<T*>(a.x) + image * image_size : scratch;
      memset(dx, 0, static_cast<size_t>(image_size) * sizeof(T));
      for (int64_t oy = 0; oy < a.out_height; ++oy)
        for (int64_t ox = 0; ox < a.out_width; ++ox) {
          const int64_t out = ((image * a.out_height + oy) * a.out_width + ox) * C;
          const Window in = window_of(a, oy, ox);
          load_run<T>(a.y, a.dtype, out, 1, C, line);
          for (int64_t c = 0; c < C; ++c) where[c] = static_cast<T>(a.index[out + c]);
          for (int64_t p = 0; p < in.pixels(); ++p) {
            const int64_t py = in.y0 + p / in.across(), px = in.x0 + p % in.across();
            T* at = dx + (py * a.width + px) * C;
            const T mine = static_cast<T>(in.index(a, py, px));
#pragma GCC ivdep
            for (int64_t c = 0; c < C; ++c) at[c] += where[c] == mine ? line[c] : T(0);
          }
        }
      if (!direct) store_run<T>(a.x, a.dtype, image * image_size, 1, image_size, dx);
    }
  };
  parallel.run(a.images, 1, body);
}

}  // namespace

void conv(Parallel& parallel, const ConvArgs& a) {
  if (is_spread(a)) return group_conv(parallel, a);
  if (a.x_dtype == DType::kFloat64) conv_in<double, double>(parallel, a);
  else if (a.x_dtype == DType::kBFloat16 && a.weight_dtype == DType::kBFloat16) conv_in<float, uint16_t>(parallel, a);
  else conv_in<float, float>(parallel, a);
}
void conv_backward_input(Parallel& parallel, const ConvArgs& a) {
  if (is_spread(a)) return group_conv_backward_input(parallel, a);
  a.y_dtype == DType::kFloat64 ? conv_backward_input_in<double>(parallel, a)
                               : conv_backward_input_in<float>(parallel, a);
}
void conv_backward_weight(Parallel& parallel, const ConvArgs& a) {
  if (is_spread(a)) return group_conv_backward_weight(parallel, a);
  if (a.x_dtype == DType::kFloat64) conv_backward_weight_in<double, double>(parallel, a);
  else if (a.x_dtype == DType::kBFloat16 && a.y_dtype == DType::kBFloat16)
    conv_backward_weight_in<float, uint16_t>(parallel, a);
  else conv_backward_weight_in<float, float>(parallel, a);
}
void max_pool(Parallel& parallel, const PoolArgs& a) {
  a.dtype == DType::kFloat64 ? max_pool_in<double>(parallel, a) : max_pool_in<float>(parallel, a);
}
void max_pool_backward(Parallel& parallel, const PoolArgs& a) {
  a.dtype == DType::kFloat64 ? max_pool_backward_in<double>(parallel, a) : max_pool_backward_in<float>(parallel, a);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
