// Which axis of an array of images holds the channels. Plain functions; samples have them last.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "core/base/shape.h"

namespace lockstep {

enum class ImageLayout : uint8_t { kByShape, kChannelsLast, kChannelsFirst };

// The layout of bytes of shape [n, a, b, c]: the given one, or that which the shape alone tells: 1 or 3 channels in the
// first place and neither 1, 3 nor 4 in the last, or 1, 3 or 4 in the last and neither 1 nor 3 in the first. Throws
// ExitCode::kBadData naming `place` where it does not tell; `advice` says how to give it, as "--layout nchw or nhwc".
inline ImageLayout layout_of(const Shape& shape, ImageLayout given, const std::string& place,
                             const std::string& advice) {
  if (given != ImageLayout::kByShape) return given;
  const bool first = shape[1] == 1 || shape[1] == 3, last = shape[3] == 1 || shape[3] == 3 || shape[3] == 4;
  require(first != last, ExitCode::kBadData, place, ": has shape ", shape,
          ", which does not tell whether the channels of an image are its first axis or its last: give ", advice);
  return first ? ImageLayout::kChannelsFirst : ImageLayout::kChannelsLast;
}

// [n, channels, height, width] as [n, height, width, channels].
inline Shape with_channels_last(const Shape& s) { return {s[0], s[2], s[3], s[1]}; }

// Images of shape [channels, height, width], one behind the other, with their channels last: [height, width, channels].
inline void to_channels_last(const uint8_t* from, int64_t images, const Shape& last, uint8_t* to) {
  const int64_t pixels = last[1] * last[2], channels = last[3];
  for (int64_t i = 0; i < images; ++i, from += pixels * channels)
    for (int64_t p = 0; p < pixels; ++p)
      for (int64_t c = 0; c < channels; ++c) *to++ = from[c * pixels + p];
}

}  // namespace lockstep
