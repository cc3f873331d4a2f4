// Convolution and max pooling of NHWC images. A convolution is a matrix product over patches, one image at a time, so
// that the patches stay in cache; weight gradients add images in order, each thread owning a block of weights.
#include "core/kernels/gemm_serial.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kPatches = 3;  // scratch slot

// patches[p, c] for columns [c0, c1) of [kh, kw, channel], p over output pixels.
template <class T>
void gather_patches(const ConvArgs& a, int64_t image, int64_t c0, int64_t c1, T* patches) {
  const int64_t C = a.in_channels, width = c1 - c0;
  const int64_t base = image * a.height * a.width * C;
  for (int64_t oy = 0; oy < a.out_height; ++oy)
    for (int64_t ox = 0; ox < a.out_width; ++ox) {
      T* line = patches + (oy * a.out_width + ox) * width;
      int64_t c = c0;
      while (c < c1) {
        // One stretch: a kernel row, as far as it stays inside the image.
        const int64_t tap = c / C, ky = tap / a.kernel_w, kx = tap % a.kernel_w, ch = c % C;
        const int64_t y = oy * a.stride + ky - a.padding, x = ox * a.stride + kx - a.padding;
        int64_t end = (ky + 1) * a.kernel_w * C;
        if (end > c1) end = c1;
        if (y < 0 || y >= a.height) {
          for (; c < end; ++c) *line++ = T(0);
          continue;
        }
        if (x < 0 || x >= a.width) {  // this tap only
          const int64_t tap_end = (tap + 1) * C < end ? (tap + 1) * C : end;
          for (; c < tap_end; ++c) *line++ = T(0);
          continue;
        }
        const int64_t inside = (a.width - x) * C - ch;
        const int64_t n = end - c < inside ? end - c : inside;
        load_run<T>(a.x, a.x_dtype, base + (y * a.width + x) * C + ch, 1, n, line);
        line += n;
        c += n;
      }
    }
}

// dx += patches, the transpose of gather_patches over all columns. dx is one image, already zeroed or holding what to
// add to.
template <class T>
void scatter_patches(const ConvArgs& a, const T* patches, T* dx) {
  const int64_t C = a.in_channels, row = a.kernel_w * C;
  for (int64_t oy = 0; oy < a.out_height; ++oy)
    for (int64_t ox = 0; ox < a.out_width; ++ox)
      for (int64_t ky = 0; ky < a.kernel_h; ++ky) {
        const T* line = patches + ((oy * a.out_width + ox) * a.kernel_h + ky) * row;
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

template <class T>
void conv_in(Parallel& parallel, const ConvArgs& a) {
  const int64_t pixels = a.out_height * a.out_width, taps = a.kernel_h * a.kernel_w * a.in_channels;
  auto body = [&](int64_t begin, int64_t end) {
    T* patches = static_cast<T*>(parallel.scratch(kPatches, pixels * taps * static_cast<int64_t>(sizeof(T))));
    for (int64_t image = begin; image < end; ++image) {
      gather_patches<T>(a, image, 0, taps, patches);
      GemmArgs g;
      g.m = pixels, g.n = a.out_channels, g.k = taps;
      g.a = dense(patches, taps);
      g.b = {a.weight, a.weight_dtype, 1, taps, 0};
      g.c = block_of({a.y, a.y_dtype, a.out_channels, 1, 0}, image * pixels, 0);
      g.bias = a.bias;
      g.bias_dtype = a.bias_dtype;
      gemm_serial<T>(parallel, g);
    }
  };
  parallel.run(a.images, 1, body);
}

template <class T>
void conv_backward_input_in(Parallel& parallel, const ConvArgs& a) {
  const int64_t pixels = a.out_height * a.out_width, taps = a.kernel_h * a.kernel_w * a.in_channels;
  const int64_t image_size = a.height * a.width * a.in_channels;
  auto body = [&](int64_t begin, int64_t end) {
    const int64_t patch_bytes = pixels * taps * static_cast<int64_t>(sizeof(T));
    T* patches =
        static_cast<T*>(parallel.scratch(kPatches, patch_bytes + image_size * static_cast<int64_t>(sizeof(T))));
    T* dx = patches + pixels * taps;
    for (int64_t image = begin; image < end; ++image) {
      GemmArgs g;
      g.m = pixels, g.n = taps, g.k = a.out_channels;
      g.a = block_of({a.y, a.y_dtype, a.out_channels, 1, 0}, image * pixels, 0);
      g.b = {a.weight, a.weight_dtype, taps, 1, 0};
      g.c = dense(patches, taps);
      gemm_serial<T>(parallel, g);
      if (a.accumulate) load_run<T>(a.x, a.x_dtype, image * image_size, 1, image_size, dx);
      else memset(dx, 0, static_cast<size_t>(image_size) * sizeof(T));
      scatter_patches<T>(a, patches, dx);
      store_run<T>(a.x, a.x_dtype, image * image_size, 1, image_size, dx);
    }
  };
  parallel.run(a.images, 1, body);
}

template <class T>
void conv_backward_weight_in(Parallel& parallel, const ConvArgs& a) {
  const int64_t pixels = a.out_height * a.out_width, taps = a.kernel_h * a.kernel_w * a.in_channels;
  // Blocks of weights, one a thread: columns first (patches are then gathered once), output channels where columns are
  // few.
  const int64_t threads = parallel.threads();
  int64_t cuts = (taps + 15) / 16 < threads ? (taps + 15) / 16 : threads, rows_cut = (threads + cuts - 1) / cuts;
  if (rows_cut > a.out_channels) rows_cut = a.out_channels;
  const int64_t cols = ((taps + cuts - 1) / cuts + 15) / 16 * 16, rows = (a.out_channels + rows_cut - 1) / rows_cut;
  cuts = (taps + cols - 1) / cols;
  rows_cut = (a.out_channels + rows - 1) / rows;
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t c0 = item % cuts * cols, c1 = c0 + cols < taps ? c0 + cols : taps;
      const int64_t r0 = item / cuts * rows, r1 = r0 + rows < a.out_channels ? r0 + rows : a.out_channels;
      T* patches = static_cast<T*>(parallel.scratch(kPatches, pixels * (c1 - c0) * static_cast<int64_t>(sizeof(T))));
      for (int64_t image = 0; image < a.images; ++image) {
        gather_patches<T>(a, image, c0, c1, patches);
        GemmArgs g;
        g.m = r1 - r0, g.n = c1 - c0, g.k = pixels;
        const Matrix dy = block_of({a.y, a.y_dtype, a.out_channels, 1, 0}, image * pixels, r0);
        g.a = {dy.data, dy.dtype, 1, a.out_channels, 0};
        g.b = dense(patches, c1 - c0);
        g.c = block_of({a.weight, a.weight_dtype, taps, 1, 0}, r0, c0);
        g.accumulate = a.accumulate || image > 0;
        gemm_serial<T>(parallel, g);
      }
    }
  };
  parallel.run(cuts * rows_cut, 1, body);
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
          const T* corner = pixels + (oy * a.stride * a.width + ox * a.stride) * C;
          for (int64_t c = 0; c < C; ++c) best[c] = corner[c], where[c] = T(0);
          for (int64_t w = 1; w < a.window * a.window; ++w) {
            const T* at = corner + (w / a.window * a.width + w % a.window) * C;
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
          T* corner = dx + (oy * a.stride * a.width + ox * a.stride) * C;
          load_run<T>(a.y, a.dtype, out, 1, C, line);
          for (int64_t c = 0; c < C; ++c) where[c] = static_cast<T>(a.index[out + c]);
          for (int64_t w = 0; w < a.window * a.window; ++w) {
            T* at = corner + (w / a.window * a.width + w % a.window) * C;
            const T mine = static_cast<T>(w);
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
  a.x_dtype == DType::kFloat64 ? conv_in<double>(parallel, a) : conv_in<float>(parallel, a);
}
void conv_backward_input(Parallel& parallel, const ConvArgs& a) {
  a.y_dtype == DType::kFloat64 ? conv_backward_input_in<double>(parallel, a)
                               : conv_backward_input_in<float>(parallel, a);
}
void conv_backward_weight(Parallel& parallel, const ConvArgs& a) {
  a.x_dtype == DType::kFloat64 ? conv_backward_weight_in<double>(parallel, a)
                               : conv_backward_weight_in<float>(parallel, a);
}
void max_pool(Parallel& parallel, const PoolArgs& a) {
  a.dtype == DType::kFloat64 ? max_pool_in<double>(parallel, a) : max_pool_in<float>(parallel, a);
}
void max_pool_backward(Parallel& parallel, const PoolArgs& a) {
  a.dtype == DType::kFloat64 ? max_pool_backward_in<double>(parallel, a) : max_pool_backward_in<float>(parallel, a);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
