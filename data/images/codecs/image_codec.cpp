#include <algorithm>

#include "core/base/error.h"
#include "data/images/codecs/codecs.h"

namespace lockstep {
namespace codecs {

int exif_orientation(std::string_view segment) {
  using namespace std::string_view_literals;
  if (!segment.starts_with("Exif\0\0"sv)) return 1;
  const std::string_view tiff = segment.substr(6);
  const bool little = tiff.starts_with("II*\0"sv);
  if (!little && !tiff.starts_with("MM\0*"sv)) return 1;
  const auto number = [&](size_t at, size_t bytes) -> size_t {
    if (at > tiff.size() || bytes > tiff.size() - at) return 0;
    size_t value = 0;
    for (size_t i = 0; i < bytes; ++i)
      value = value << 8 | static_cast<uint8_t>(tiff[at + (little ? bytes - 1 - i : i)]);
    return value;
  };
  const size_t first = number(4, 4), entries = number(first, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = first + 2 + 12 * i, value = number(at + 8, 2);
    if (number(at, 2) == 0x0112) return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

namespace {

std::unique_ptr<Decoder> opened(std::string_view file, const std::string& name, bool mask = false) {
  const bool png = file.starts_with("\x89PNG\r\n\x1a\n"), jpeg = !mask && file.starts_with("\xff\xd8\xff");
  require(png || jpeg, ExitCode::kBadData, name, mask ? ": is no PNG file" : ": is neither a PNG nor a JPEG file");
  std::unique_ptr<Decoder> decoder = mask ? mask_decoder() : png ? png_decoder() : jpeg_decoder();
  const bool good = decoder->open(file);
  require(good || decoder->supported, ExitCode::kBadData, name, ": ", decoder->failure);
  const char* what = mask ? ": is no mask, or damaged: " : png ? ": is a damaged PNG: " : ": is a damaged JPEG: ";
  require(good, ExitCode::kBadData, name, what, decoder->failure);
  const ImageInfo& i = decoder->stored;
  require(i.height > 0 && i.width > 0 && i.height <= kMostImageBytes / 3 / i.width, ExitCode::kBadData, name,
          ": is an image of ", i.height, " x ", i.width, " pixels; at most ", kMostImageBytes >> 20,
          " MiB can be decoded, at 3 bytes a pixel");
  return decoder;
}

bool turns(int orientation) { return orientation >= 5; }

// Where EXIF's orientations put the first row and column.
ByteImage upright(const ByteImage& from, int orientation) {
  if (orientation == 1) return from;
  ByteImage to = from;
  if (turns(orientation)) std::swap(to.height, to.width);
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_below = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  for (int64_t y = 0; y < to.height; ++y)
    for (int64_t x = 0; x < to.width; ++x) {
      int64_t row = turns(orientation) ? x : y, column = turns(orientation) ? y : x;
      if (from_below) row = from.height - 1 - row;
      if (from_right) column = from.width - 1 - column;
      std::copy_n(from.bytes.data() + (row * from.width + column) * from.channels, from.channels,
                  to.bytes.data() + (y * to.width + x) * to.channels);
    }
  return to;
}

}  // namespace
}  // namespace codecs

namespace {

ByteImage pixels_of(codecs::Decoder& decoder, const std::string& name) {
  const ImageInfo& stored = decoder.stored;
  ByteImage image{stored.height, stored.width, stored.channels, {}};
  image.bytes.resize(static_cast<size_t>(stored.bytes()));
  const bool good = decoder.decode(image.bytes.data());
  require(good, ExitCode::kBadData, name, ": is a damaged image: ", decoder.failure);
  return image;
}

}  // namespace

ImageInfo image_info(std::string_view file, const std::string& name) {
  const auto decoder = codecs::opened(file, name);
  ImageInfo info = decoder->stored;
  if (codecs::turns(decoder->orientation)) std::swap(info.height, info.width);
  return info;
}

void WideValues::add(const WideValues& other) {
  images += other.images, above_zero += other.above_zero, lost += other.lost;
  largest = std::max(largest, other.largest);
}

ByteImage decode_image(std::string_view file, int64_t channels, const std::string& name, WideValues* wide) {
  const auto decoder = codecs::opened(file, name);
  const ImageInfo& stored = decoder->stored;
  require(stored.channels <= channels, ExitCode::kBadData, name, ": is in colour, but the dataset's images are grey");
  ByteImage image = pixels_of(*decoder, name);
  if (wide) wide->add(decoder->wide);
  if (stored.channels < channels) {
    ByteImage wide{image.height, image.width, channels, {}};
    wide.bytes.reserve(image.bytes.size() * static_cast<size_t>(channels));
    for (uint8_t value : image.bytes) wide.bytes.insert(wide.bytes.end(), static_cast<size_t>(channels), value);
    image = std::move(wide);
  }
  return decoder->orientation == 1 ? image : codecs::upright(image, decoder->orientation);
}

ByteImage decode_mask(std::string_view file, const std::string& name) {
  const auto decoder = codecs::opened(file, name, true);
  ByteImage mask = pixels_of(*decoder, name);
  return decoder->orientation == 1 ? mask : codecs::upright(mask, decoder->orientation);
}

}  // namespace lockstep
