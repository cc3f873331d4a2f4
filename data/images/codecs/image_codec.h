// PNG and JPEG files in memory: what they hold, decoding, and writing PNG. The only door to libpng and libjpeg; where
// those were absent when building, absent.cpp stands in. Plain functions, callable from any thread.
//
// A decoded image has 8-bit values and 1 channel (grey) or 3 (RGB). Palettes and 1 to 4 bits are expanded, of 16 bits
// the higher 8 are kept, an alpha channel is dropped. An image is turned as its EXIF orientation says; colour profiles
// and gamma are not applied. Values equal those of Pillow, which decodes by the same libraries.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/images/resize.h"

namespace lockstep {

// The most bytes that an image may have, decoded or encoded.
constexpr int64_t kMostImageBytes = int64_t{1} << 28;

struct ImageInfo {
  int64_t height = 0, width = 0;  // as it is to be shown
  int64_t channels = 0;           // 1 or 3
  int64_t bytes() const { return height * width * channels; }
};

// The values of images of 16 bits, of which the higher 8 are kept.
struct WideValues {
  int64_t images = 0, above_zero = 0, lost = 0;  // of the values above 0 those that become 0
  int64_t largest = 0;
  void add(const WideValues& other);
};

// These throw ExitCode::kBadData with a message that begins with `name`: for what is neither PNG nor JPEG, damaged or
// truncated, has 4 colours (CMYK), or would be larger than kMostImageBytes, which is found out before memory is
// allocated. kDevice where this build has no codecs.

// Reads the header alone.
ImageInfo image_info(std::string_view file, const std::string& name);
// `channels`: 1 for grey images only, or 3; a grey image then has three equal channels. `wide`: what an image of 16
// bits is added to; may be null.
ByteImage decode_image(std::string_view file, int64_t channels, const std::string& name, WideValues* wide = nullptr);
// The values of a grey PNG of 1 to 8 bits as they are stored, or the indices of one with a palette. Throws kBadData for
// other files, too.
ByteImage decode_mask(std::string_view file, const std::string& name);
// A PNG file of an image with 1 or 3 channels.
std::string encode_png(const ByteImage& image);
// The same of a mask, 1 channel, whose values are indices of a palette: red, green and blue of each, at most 256.
std::string encode_png(const ByteImage& mask, const std::vector<std::array<uint8_t, 3>>& palette);

}  // namespace lockstep
