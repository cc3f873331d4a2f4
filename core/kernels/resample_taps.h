// The pixels and weights of resampling along one dimension. Plain functions, compiled once per instruction-set level.
#pragma once

#include "core/kernels/math.h"
#include "core/kernels/resample.h"

namespace lockstep::inline LOCKSTEP_ISA {

// The input pixels [first, end) of an output pixel: each counts `weight`, but the last one `last`.
struct ResampleTaps {
  int64_t first = 0, end = 0;
  double weight = 0, last = 0;
  HD double of(int64_t i) const { return i + 1 == end ? last : weight; }
};

HD inline ResampleTaps taps_of(const ResampleAxis& a, int64_t o) {
  if (a.mode == ResampleMode::kNearest) return {o * a.in / a.out, o * a.in / a.out + 1, 1, 1};
  if (a.mode == ResampleMode::kLinear) {
    // (o + 0.5) in / out - 0.5, in whole numbers up to one division
    const int64_t twice = (2 * o + 1) * a.in - a.out, at = twice > 0 ? twice : 0, first = at / (2 * a.out);
    const double far = static_cast<double>(at - first * 2 * a.out) / static_cast<double>(2 * a.out);
    if (first + 1 >= a.in || far == 0) return {first, first + 1, 1, 1};
    return {first, first + 2, 1 - far, far};
  }
  const bool moves = a.mode == ResampleMode::kWindow;
  const int64_t from = moves ? o * a.stride - a.padding : o * a.in / a.out;
  const int64_t to = moves ? from + a.window : ((o + 1) * a.in + a.out - 1) / a.out;
  const int64_t first = from > 0 ? from : 0, end = to < a.in ? to : a.in;
  const double share = 1 / static_cast<double>(a.count_padding ? to - from : end - first);
  return {first, end, share, share};
}

// The output pixels [first, end) that may have input pixel i among theirs.
struct ResampleRange {
  int64_t first = 0, end = 0;
};
HD inline ResampleRange outputs_of(const ResampleAxis& a, int64_t i) {
  int64_t first = 0, end = 0;
  if (a.mode == ResampleMode::kWindow) {
    const int64_t at = i + a.padding;
    first = at < a.window ? 0 : (at - a.window) / a.stride + 1, end = at / a.stride + 1;
  } else if (a.mode == ResampleMode::kLinear) {
    first = (i - 1) * a.out / a.in - 1, end = (i + 2) * a.out / a.in + 2;
  } else {
    first = i * a.out / a.in, end = ((i + 1) * a.out + a.in - 1) / a.in;
  }
  return {first > 0 ? first : 0, end < a.out ? end : a.out};
}

// How much input pixel i counts in output pixel o.
HD inline double weight_of(const ResampleAxis& a, int64_t o, int64_t i) {
  const ResampleTaps t = taps_of(a, o);
  return i >= t.first && i < t.end ? t.of(i) : 0;
}

}  // namespace lockstep::inline LOCKSTEP_ISA
