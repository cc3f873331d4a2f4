// Resampling: rows of a rectangle are summed first, then the rows' sums; channels go inside, so that each line of them
// is one vector loop. The backward pass gathers: a pixel looks for the output pixels that it is in.
#include "core/kernels/parallel.h"
#include "core/kernels/resample_taps.h"
#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kLines = 0;  // scratch slot

// What one thread holds: lines of channels.
template <class T>
struct ResampleLines {
  ResampleLines(Parallel& parallel, const ResampleArgs& a) : channels(a.channels), dtype(a.dtype) {
    total = static_cast<T*>(parallel.scratch(kLines, 3 * channels * static_cast<int64_t>(sizeof(T))));
    row = total + channels, converted = row + channels;
  }
  void clear(T* line) const { memset(line, 0, static_cast<size_t>(channels) * sizeof(T)); }
  // row += weight * the channels of a pixel
  void add(const void* image, int64_t pixel, double weight) const {
    const T* from = converted;
    if (dtype == kTypeOf<T>) from = static_cast<const T*>(image) + pixel * channels;
    else load_run<T>(image, dtype, pixel * channels, 1, channels, converted);
    const T w = static_cast<T>(weight);
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) row[c] = fused(from[c], w, row[c]);
  }
  void add_row(double weight) const {
    const T w = static_cast<T>(weight);
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) total[c] = fused(row[c], w, total[c]);
  }
  void store(void* image, int64_t pixel) const { store_run<T>(image, dtype, pixel * channels, 1, channels, total); }

  int64_t channels;
  DType dtype;
  T *total, *row, *converted;
};

int64_t resample_grain(int64_t columns, int64_t channels) { return 16384 / (columns * channels + 1) + 1; }

template <class T>
void resample_in(Parallel& parallel, const ResampleArgs& a) {
  const ResampleAxis &h = a.height, &w = a.width;
  auto body = [&](int64_t begin, int64_t end) {
    const ResampleLines<T> lines(parallel, a);
    for (int64_t item = begin; item < end; ++item) {  // of [images, out rows]
      const int64_t image = item / h.out;
      const ResampleTaps ys = taps_of(h, item % h.out);
      for (int64_t ox = 0; ox < w.out; ++ox) {
        const ResampleTaps xs = taps_of(w, ox);
        lines.clear(lines.total);
        for (int64_t y = ys.first; y < ys.end; ++y) {
          lines.clear(lines.row);
          for (int64_t x = xs.first; x < xs.end; ++x) lines.add(a.x, (image * h.in + y) * w.in + x, xs.of(x));
          lines.add_row(ys.of(y));
        }
        lines.store(a.y, item * w.out + ox);
      }
    }
  };
  parallel.run(a.images * h.out, resample_grain(w.out, a.channels), body);
}

template <class T>
void resample_backward_in(Parallel& parallel, const ResampleArgs& a) {
  const ResampleAxis &h = a.height, &w = a.width;
  auto body = [&](int64_t begin, int64_t end) {
    const ResampleLines<T> lines(parallel, a);
    for (int64_t item = begin; item < end; ++item) {  // of [images, in rows]
      const int64_t image = item / h.in, y = item % h.in;
      const ResampleRange ys = outputs_of(h, y);
      for (int64_t x = 0; x < w.in; ++x) {
        const ResampleRange xs = outputs_of(w, x);
        lines.clear(lines.total);
        for (int64_t oy = ys.first; oy < ys.end; ++oy) {
          const double of_row = weight_of(h, oy, y);
          if (of_row == 0) continue;
          lines.clear(lines.row);
          for (int64_t ox = xs.first; ox < xs.end; ++ox)
            if (const double of_column = weight_of(w, ox, x); of_column != 0)
              lines.add(a.y, (image * h.out + oy) * w.out + ox, of_column);
          lines.add_row(of_row);
        }
        lines.store(a.x, item * w.in + x);
      }
    }
  };
  parallel.run(a.images * h.in, resample_grain(w.in, a.channels), body);
}

}  // namespace

void resample(Parallel& parallel, const ResampleArgs& a) {
  a.dtype == DType::kFloat64 ? resample_in<double>(parallel, a) : resample_in<float>(parallel, a);
}
void resample_backward(Parallel& parallel, const ResampleArgs& a) {
  a.dtype == DType::kFloat64 ? resample_backward_in<double>(parallel, a) : resample_backward_in<float>(parallel, a);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
