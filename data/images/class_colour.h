// How classes are shown on images. Plain functions.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "data/images/resize.h"

namespace lockstep {

// The colour of a class: its bits, the lowest first, are the highest of red, green, blue, red and so on, as in the
// masks of PASCAL VOC. Class 0 is black.
inline std::array<uint8_t, 3> colour_of(uint8_t value) {
  std::array<uint8_t, 3> out{};
  for (int bit = 0; bit < 8; ++bit)
    if (value >> bit & 1) out[static_cast<size_t>(bit % 3)] |= static_cast<uint8_t>(0x80 >> bit / 3);
  return out;
}

// An image of 1 channel with three equal ones.
inline ByteImage in_colour(ByteImage image) {
  if (image.channels == 3) return image;
  ByteImage out{image.height, image.width, 3, {}};
  for (uint8_t value : image.bytes) out.bytes.insert(out.bytes.end(), 3, value);
  return out;
}

}  // namespace lockstep
