// ByteImage, an image of 8-bit values in memory, and resizing it. A plain value and plain functions.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

struct ByteImage {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> bytes;  // [height, width, channels], row-major
};

// A rectangle in pixels, from (left, top) up to but not including (right, bottom).
struct PixelBox {
  int64_t left = 0, top = 0, right = 0, bottom = 0;
};

// The part of an image within `box`, resized to height x width. Bilinear with a filter as wide as the scale, so that
// all pixels of the box count when it is made smaller. The bytes equal those of Pillow 13's
// Image.resize((width, height), BILINEAR, box): integer arithmetic, with weights of 22 bits, and bytes between the
// axes. Rows are resampled first, or columns where the image loses height, and more than twice as many rows as columns;
// before version 13 rows always were.
ByteImage resize(const uint8_t* pixels, int64_t image_height, int64_t image_width, int64_t channels,
                 const PixelBox& box, int64_t height, int64_t width);

// The same by the nearest pixel, for masks: of each output pixel the one that its centre lies in.
ByteImage resize_nearest(const uint8_t* pixels, int64_t image_height, int64_t image_width, int64_t channels,
                         const PixelBox& box, int64_t height, int64_t width);

// The largest rectangle in the middle of an image whose sides have the ratio of height : width.
PixelBox centred_box(int64_t image_height, int64_t image_width, int64_t height, int64_t width);

}  // namespace lockstep
