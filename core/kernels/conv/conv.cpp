// Convolution and max pooling of NHWC images. A convolution is a matrix product over patches: the product gathers parts
// of them where it packs its operands, or, in bf16, they are held for as many output pixels at a time as stay in a
// cache, be they of one image or of several. Weight gradients add pixels in order, each thread owning a block of
// weights. Those with groups or dilation are in group_conv.cpp.
#include "core/kernels/conv/group_conv.h"
#include "core/kernels/conv/patches.h"
#include "core/kernels/simd.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

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

// The patches of output pixels from `pixel` on and the columns of [kh, kw, channel] from `column` on, in type T; bf16
// as it is stored, in uint16_t.
template <class T>
class PatchMatrix final : public GatheredMatrix<T> {
 public:
  PatchMatrix(const ConvArgs& a, int64_t pixel, int64_t column) : a_(a), pixel_(pixel), column_(column) {}

  void gather(int64_t row, int64_t rows, int64_t col, int64_t cols, T* out, int64_t ld) const override {
    const Lines lines(a_, column_ + col, cols);
    for (int64_t p = pixel_ + row, end = p + rows, n; p < end; p += n, out += n * ld) {
      const Place at(a_, p);
      n = a_.out_width - at.ox < end - p ? a_.out_width - at.ox : end - p;
      T* to = out;
      for (int64_t ky = lines.first; ky <= lines.last; ++ky) {
        const int64_t from = lines.from(ky), until = lines.until(ky);
        line_patches(at, n, ky, from, until, to, ld);
        to += until - from;
      }
    }
  }

  // A line of the kernel sees neighbouring pixels' patches where the image's line has them, each `stride` pixels on.
  int64_t find_rows(int64_t row, int64_t rows, int64_t col, int64_t cols, T* out, Stretch<T>* stretches,
                    int& count) const override {
    const Lines lines(a_, column_ + col, cols);
    const Place at(a_, pixel_ + row);
    const int64_t C = a_.in_channels, step = a_.stride * C,
                  n = a_.out_width - at.ox < rows ? a_.out_width - at.ox : rows;
    bool fits = lines.last - lines.first < kMostStretches && (n == rows || a_.out_width >= 8);
    for (int64_t ky = lines.first; ky <= lines.last; ++ky) fits &= lines.until(ky) - lines.from(ky) >= step;
    count = 0;
    if (!fits) {
      gather(row, rows, col, cols, out, cols);
      stretches[count++] = {{out, cols, false}, 0, cols};
      return rows;
    }
    for (int64_t ky = lines.first, done = 0; ky <= lines.last; ++ky) {
      const int64_t from = lines.from(ky), depth = lines.until(ky) - from, length = (n - 1) * step + depth;
      const int64_t y = at.oy * a_.stride - a_.padding + ky, x = (at.ox * a_.stride - a_.padding) * C + from;
      const T* place = out;
      if (a_.x_dtype == kPatchType<T> && y >= 0 && y < a_.height && x >= 0 && x + length <= a_.width * C) {
        place = static_cast<const T*>(a_.x) + (at.image * a_.height + y) * a_.width * C + x;
      } else {
        line_part(at.image, y, x, length, out);
        out += length;
      }
      stretches[count++] = {{place, step, false}, done, depth};
      done += depth;
    }
    return n;
  }

 private:
  struct Place {
    Place(const ConvArgs& a, int64_t pixel)
        : image(pixel / (a.out_height * a.out_width)),
          oy(pixel / a.out_width % a.out_height),
          ox(pixel % a.out_width) {}
    int64_t image, oy, ox;
  };
  // The lines of the kernel that `cols` columns from `begin` on lie in, and which elements of each.
  struct Lines {
    Lines(const ConvArgs& a, int64_t begin, int64_t cols)
        : size(a.kernel_w * a.in_channels),
          begin(begin),
          end(begin + cols),
          first(begin / size),
          last((end - 1) / size) {}
    int64_t from(int64_t ky) const { return ky == first ? begin - first * size : 0; }
    int64_t until(int64_t ky) const { return ky == last ? end - last * size : size; }
    int64_t size, begin, end, first, last;
  };

  // Elements [from, until) of line ky of the patches of n pixels side by side.
  void line_patches(const Place& at, int64_t n, int64_t ky, int64_t from, int64_t until, T* out, int64_t ld) const {
    const int64_t C = a_.in_channels, step = a_.stride * C, count = until - from;
    const int64_t y = at.oy * a_.stride - a_.padding + ky;
    int64_t x = (at.ox * a_.stride - a_.padding) * C + from;
    for (int64_t i = 0; i < n; ++i, x += step, out += ld) {
      if (y < 0 || y >= a_.height || x < 0 || x + count > a_.width * C || a_.x_dtype != kPatchType<T>) {
        line_part(at.image, y, x, count, out);
        continue;
      }
      // As many as lie inside.
      const int64_t inside = (a_.width * C - count - x) / step + 1, some = inside < n - i ? inside : n - i;
      copy_runs(static_cast<const T*>(a_.x) + (at.image * a_.height + y) * a_.width * C + x, step, some, count, out,
                ld);
      i += some - 1, x += (some - 1) * step, out += (some - 1) * ld;
    }
  }

  // Elements [x, x + n) of an image's line, of which those that are not there are zero.
  void line_part(int64_t image, int64_t y, int64_t x, int64_t n, T* out) const {
    const int64_t end = a_.width * a_.in_channels;
    int64_t from = x < 0 ? -x : 0, until = x + n > end ? end - x : n;
    if (y < 0 || y >= a_.height || from >= until) from = until = n;
    for (int64_t i = 0; i < from; ++i) out[i] = T(0);
    if (until > from) copy_run(a_.x, a_.x_dtype, (image * a_.height + y) * end + x + from, until - from, out + from);
    for (int64_t i = until; i < n; ++i) out[i] = T(0);
  }

  // `runs` runs of n elements, at `step` and `ld` elements.
  static void copy_runs(const T* p, int64_t step, int64_t runs, int64_t n, T* out, int64_t ld) {
    if constexpr (std::is_same_v<T, uint16_t>) {
      for (int64_t r = 0; r < runs; ++r, p += step, out += ld) memcpy(out, p, static_cast<size_t>(n) * sizeof(T));
    } else {
      using S = Simd<T>;
      const auto copy = [&](auto vectors) {
        for (int64_t r = 0; r < runs; ++r, p += step, out += ld)
          for (int64_t i = 0; i < vectors; ++i) S::store(out + i * S::kLanes, S::load(p + i * S::kLanes));
      };
      if (n == 3 * S::kLanes) return copy(std::integral_constant<int64_t, 3>());
      if (n == 2 * S::kLanes) return copy(std::integral_constant<int64_t, 2>());
      if (n == S::kLanes) return copy(std::integral_constant<int64_t, 1>());
      for (int64_t r = 0; r < runs; ++r, p += step, out += ld) {
        int64_t i = 0;
        for (; i + S::kLanes <= n; i += S::kLanes) S::store(out + i, S::load(p + i));
        for (; i < n; ++i) out[i] = p[i];
      }
    }
  }

  const ConvArgs& a_;
  const int64_t pixel_, column_;
};

// Whether a patch is one pixel, so that the images are the matrix of patches.
bool has_plain_patches(const ConvArgs& a) {
  return a.kernel_h == 1 && a.kernel_w == 1 && a.stride == 1 && a.padding == 0;
}

// The weights, as [taps, output channels].
GemmArgs product_with_weight(const ConvArgs& a, int64_t pixel, int64_t pixels) {
  const int64_t taps = a.kernel_h * a.kernel_w * a.in_channels;
  GemmArgs g;
  g.m = pixels, g.n = a.out_channels, g.k = taps;
  g.b = {a.weight, a.weight_dtype, 1, taps, 0};
  g.c = block_of({a.y, a.y_dtype, a.out_channels, 1, 0}, pixel, 0);
  g.bias = a.bias;
  g.bias_dtype = a.bias_dtype;
  return g;
}

// Pixels that one piece of work has at least, so that packing the weights takes little beside its products.
int64_t pixel_grain(const ConvArgs& a, int64_t threads) {
  const int64_t share = (pixels_of(a) / threads + 63) / 64 * 64;
  return share < 64 ? 64 : share > 256 ? 256 : share;
}

template <class T>
void conv_in(Parallel& parallel, const ConvArgs& a) {
  const bool direct = a.y_dtype == kTypeOf<T>;
  auto body = [&](int64_t begin, int64_t end) {
    // Where the output has another type, a product holds its sums in T.
    const int64_t most = direct ? end - begin : pixels_at_once<T>(a.out_channels, end - begin);
    for (int64_t p = begin; p < end; p += most) {
      GemmArgs g = product_with_weight(a, p, end - p < most ? end - p : most);
      if (has_plain_patches(a)) {
        g.a = block_of({a.x, a.x_dtype, a.in_channels, 1, 0}, p, 0);
        gemm_serial<T>(parallel, g);
      } else {
        gemm_of_gathered_a<T>(parallel, g, PatchMatrix<T>(a, p, 0));
      }
    }
  };
  parallel.run(pixels_of(a), pixel_grain(a, parallel.threads()), body);
}

void conv_in_bf16(Parallel& parallel, const ConvArgs& a) {
  const int64_t taps = a.kernel_h * a.kernel_w * a.in_channels;
  auto body = [&](int64_t begin, int64_t end) {
    const int64_t most = pixels_at_once<uint16_t>(taps, end - begin);
    auto* patches = static_cast<uint16_t*>(parallel.scratch(kPatches, most * taps * 2));
    for (int64_t p = begin; p < end; p += most) {
      const int64_t pixels = end - p < most ? end - p : most;
      PatchMatrix<uint16_t>(a, p, 0).gather(0, pixels, 0, taps, patches, taps);
      GemmArgs g = product_with_weight(a, p, pixels);
      g.a = patch_matrix(patches, taps);
      gemm_serial<float>(parallel, g);
    }
  };
  parallel.run(pixels_of(a), pixel_grain(a, parallel.threads()), body);
}

// How many pixels' gradients of patches are held at once: so many that packing the weights for each time takes little
// beside the products, whose share of packing falls as 1 / pixels, and that of writing patches as 1 / output channels.
int64_t least_pixels(const ConvArgs& a) {
  const int64_t half = a.out_channels / 2 / 64 * 64;
  return half < 64 ? 64 : half > 256 ? 256 : half;
}

template <class T>
void conv_backward_input_in(Parallel& parallel, const ConvArgs& a) {
  const int64_t of_image = a.out_height * a.out_width, taps = a.kernel_h * a.kernel_w * a.in_channels;
  const int64_t image_size = a.height * a.width * a.in_channels;
  const bool direct = a.x_dtype == kTypeOf<T>, in_place = has_plain_patches(a) && direct && !a.accumulate;
  auto body = [&](int64_t begin, int64_t end) {
    const int64_t first = begin * of_image, last = end * of_image;
    GemmArgs g;
    g.m = last - first, g.n = taps, g.k = a.out_channels;
    g.b = {a.weight, a.weight_dtype, taps, 1, 0};
    if (in_place) {
      g.a = block_of({a.y, a.y_dtype, a.out_channels, 1, 0}, first, 0);
      g.c = dense(static_cast<T*>(a.x) + first * taps, taps);
      return gemm_serial<T>(parallel, g);
    }
    const int64_t fit = pixels_at_once<T>(taps, last - first), least = least_pixels(a);
    const int64_t wanted = fit > least ? fit : least, most = wanted < last - first ? wanted : last - first;
    T* patches = static_cast<T*>(
        parallel.scratch(kPatches, (most * taps + (direct ? 0 : image_size)) * static_cast<int64_t>(sizeof(T))));
    T *dx = nullptr, *converted = patches + most * taps;
    g.c = dense(patches, taps);
    for (int64_t p = first; p < last; p += most) {
      const int64_t pixels = last - p < most ? last - p : most;
      g.m = pixels;
      g.a = block_of({a.y, a.y_dtype, a.out_channels, 1, 0}, p, 0);
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
  const int64_t grain = pixel_grain(a, parallel.threads());
  parallel.run(a.images, grain > of_image ? grain / of_image : 1, body);
}

// Blocks of weights, one a thread: columns first (patches are then gathered once), output channels where columns are
// few.
struct WeightBlocks {
  WeightBlocks(const ConvArgs& a, int64_t threads) {
    const int64_t taps = a.kernel_h * a.kernel_w * a.in_channels;
    across = (taps + 15) / 16 < threads ? (taps + 15) / 16 : threads;
    down = (threads + across - 1) / across;
    if (down > a.out_channels) down = a.out_channels;
    cols = ((taps + across - 1) / across + 15) / 16 * 16;
    rows = (a.out_channels + down - 1) / down;
    across = (taps + cols - 1) / cols;
    down = (a.out_channels + rows - 1) / rows;
  }
  int64_t across, down, rows, cols;
};

// Calls use(first row, rows, first column, columns) for each block.
template <class Use>
void for_weight_blocks(Parallel& parallel, const ConvArgs& a, Use use) {
  const int64_t taps = a.kernel_h * a.kernel_w * a.in_channels;
  const WeightBlocks blocks(a, parallel.threads());
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t c0 = item % blocks.across * blocks.cols, r0 = item / blocks.across * blocks.rows;
      const int64_t cols = taps - c0 < blocks.cols ? taps - c0 : blocks.cols;
      use(r0, a.out_channels - r0 < blocks.rows ? a.out_channels - r0 : blocks.rows, c0, cols);
    }
  };
  parallel.run(blocks.across * blocks.down, 1, body);
}

// The transpose of the output's gradient, from pixel p and row r0 on.
Matrix gradient_across(const ConvArgs& a, int64_t p, int64_t r0) {
  const Matrix dy = block_of({a.y, a.y_dtype, a.out_channels, 1, 0}, p, r0);
  return {dy.data, dy.dtype, 1, a.out_channels, 0};
}

template <class T>
void conv_backward_weight_in(Parallel& parallel, const ConvArgs& a) {
  const int64_t taps = a.kernel_h * a.kernel_w * a.in_channels;
  for_weight_blocks(parallel, a, [&](int64_t r0, int64_t rows, int64_t c0, int64_t cols) {
    GemmArgs g;
    g.m = rows, g.n = cols, g.k = pixels_of(a);
    g.a = gradient_across(a, 0, r0);
    g.c = block_of({a.weight, a.weight_dtype, taps, 1, 0}, r0, c0);
    g.accumulate = a.accumulate;
    if (has_plain_patches(a)) {
      g.b = block_of({a.x, a.x_dtype, a.in_channels, 1, 0}, 0, c0);
      gemm_serial<T>(parallel, g);
    } else {
      gemm_of_gathered_b<T>(parallel, g, PatchMatrix<T>(a, 0, c0));
    }
  });
}

void conv_backward_weight_in_bf16(Parallel& parallel, const ConvArgs& a) {
  const int64_t all = pixels_of(a), taps = a.kernel_h * a.kernel_w * a.in_channels;
  const bool direct = a.weight_dtype == DType::kFloat32;
  for_weight_blocks(parallel, a, [&](int64_t r0, int64_t rows, int64_t c0, int64_t cols) {
    const int64_t most = pixels_at_once<uint16_t>(cols, all);
    // Where the gradient is stored in another type, its sums are held in fp32 until the last pixel.
    const int64_t of_sums = direct ? 0 : rows * cols;
    auto* sums = static_cast<float*>(parallel.scratch(kPatches, of_sums * 4 + most * cols * 2));
    auto* patches = reinterpret_cast<uint16_t*>(sums + of_sums);
    const Matrix gradient = block_of({a.weight, a.weight_dtype, taps, 1, 0}, r0, c0);
    if (!direct && a.accumulate)
      for (int64_t r = 0; r < rows; ++r)
        load_run<float>(gradient.data, gradient.dtype, r * taps, 1, cols, sums + r * cols);
    for (int64_t p = 0; p < all; p += most) {
      const int64_t pixels = all - p < most ? all - p : most;
      PatchMatrix<uint16_t>(a, p, c0).gather(0, pixels, 0, cols, patches, cols);
      GemmArgs g;
      g.m = rows, g.n = cols, g.k = pixels;
      g.a = gradient_across(a, p, r0);
      g.b = patch_matrix(patches, cols);
      g.c = direct ? gradient : dense(sums, cols);
      g.accumulate = a.accumulate || p > 0;
      gemm_serial<float>(parallel, g);
    }
    if (!direct)
      for (int64_t r = 0; r < rows; ++r)
        store_run<float>(gradient.data, gradient.dtype, r * taps, 1, cols, sums + r * cols);
  });
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
  if (a.x_dtype == DType::kFloat64) conv_in<double>(parallel, a);
  else if (a.x_dtype == DType::kBFloat16 && a.weight_dtype == DType::kBFloat16) conv_in_bf16(parallel, a);
  else conv_in<float>(parallel, a);
}
void conv_backward_input(Parallel& parallel, const ConvArgs& a) {
  if (is_spread(a)) return group_conv_backward_input(parallel, a);
  a.y_dtype == DType::kFloat64 ? conv_backward_input_in<double>(parallel, a)
                               : conv_backward_input_in<float>(parallel, a);
}
void conv_backward_weight(Parallel& parallel, const ConvArgs& a) {
  if (is_spread(a)) return group_conv_backward_weight(parallel, a);
  if (pixels_of(a) == 0) return;
  if (a.x_dtype == DType::kFloat64) conv_backward_weight_in<double>(parallel, a);
  else if (a.x_dtype == DType::kBFloat16 && a.y_dtype == DType::kBFloat16) conv_backward_weight_in_bf16(parallel, a);
  else conv_backward_weight_in<float>(parallel, a);
}
void max_pool(Parallel& parallel, const PoolArgs& a) {
  a.dtype == DType::kFloat64 ? max_pool_in<double>(parallel, a) : max_pool_in<float>(parallel, a);
}
void max_pool_backward(Parallel& parallel, const PoolArgs& a) {
  a.dtype == DType::kFloat64 ? max_pool_backward_in<double>(parallel, a) : max_pool_backward_in<float>(parallel, a);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
