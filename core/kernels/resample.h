// Resampling of NHWC images: each output pixel is a weighted sum of a rectangle of input pixels, where a weight is the
// product of one for the row and one for the column. Average pooling, adaptive average pooling and upsampling are such
// sums; core/kernels/resample_taps.h has the weights. Plain values that a GPU launch can copy; memory belongs to the
// caller.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace lockstep {

enum class ResampleMode : uint8_t {
  kWindow,    // the mean of a window that moves by a stride
  kAdaptive,  // the mean of pixels floor(o in / out) to ceil((o + 1) in / out)
  kNearest,   // pixel floor(o in / out)
  kLinear,    // between the two pixels around (o + 0.5) in / out - 0.5, which is clamped to the image
};

// One dimension, of `in` pixels before and `out` pixels after.
struct ResampleAxis {
  ResampleMode mode = ResampleMode::kWindow;
  int64_t in = 0, out = 0;
  int64_t window = 1, stride = 1, padding = 0;  // kWindow
  bool count_padding = true;                    // kWindow: as zeros; else the mean is of pixels alone
};

struct ResampleArgs {
  int64_t images = 0, channels = 0;
  ResampleAxis height, width;
  void *x = nullptr, *y = nullptr;  // contiguous; or their gradients, in the backward kernel
  DType dtype = DType::kFloat32;    // of both
};

}  // namespace lockstep
