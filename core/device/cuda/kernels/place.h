// Where a thread of a kernel over NHWC images stands: eight channels of one pixel. Plain values.
#pragma once

#include "core/device/cuda/kernels/chunk.h"

namespace lockstep::inline LOCKSTEP_ISA {

// Item i of [images, rows, columns, chunks of channels].
struct Place {
  int64_t image, y, x, c;
  int left;
};
__device__ inline Place place_of(int64_t i, int64_t rows, int64_t columns, int64_t channels) {
  const int64_t chunks = chunks_of(channels);
  Place p;
  p.c = i % chunks * kChunk;
  i /= chunks;
  p.x = i % columns;
  i /= columns;
  p.y = i % rows;
  p.image = i / rows;
  p.left = channels - p.c < kChunk ? static_cast<int>(channels - p.c) : kChunk;
  return p;
}

}  // namespace lockstep::inline LOCKSTEP_ISA
