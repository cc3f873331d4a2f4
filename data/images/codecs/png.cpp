#include <png.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "data/images/codecs/codecs.h"

namespace lockstep {
namespace codecs {
namespace {

constexpr png_uint_32 kMostSide = 1 << 20;  // in pixels

// EXIF's orientation, of the chunk eXIf: it may follow the pixels, whereas the header is read alone.
int orientation_in(std::string_view file) {
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<uint8_t>(file[i]);
    return value;
  };
  for (size_t at = 8; file.size() - at >= 12;) {  // of each chunk: its length, type, content, checksum
    const size_t length = number(at);
    if (length > file.size() - at - 12) break;
    if (file.substr(at + 4, 4) == "eXIf") {
      const std::string exif(file.substr(at + 8, length));  // which begins as a JPEG's behind the word Exif
      return exif_orientation(exif.starts_with("Exif") ? exif : std::string("Exif\0\0", 6) + exif);
    }
    at += 12 + length;
  }
  return 1;
}

class PngDecoder final : public Decoder {
 public:
  explicit PngDecoder(bool mask) : mask_(mask) {}
  ~PngDecoder() override { png_destroy_read_struct(&png_, &info_, nullptr); }

  bool open(std::string_view file) override {
    left_ = file;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, warn);
    info_ = png_ ? png_create_info_struct(png_) : nullptr;
    if (!info_) return false;
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_user_limits(png_, kMostSide, kMostSide);
    png_set_chunk_malloc_max(png_, 8 << 20);  // ancillary chunks: texts, profiles
    png_set_chunk_cache_max(png_, 128);
    png_set_read_fn(png_, this, read);
    png_read_info(png_, info_);
    const int kind = png_get_color_type(png_, info_);
    const bool plain = kind == PNG_COLOR_TYPE_PALETTE || kind == PNG_COLOR_TYPE_GRAY;
    if (mask_ && (!plain || png_get_bit_depth(png_, info_) > 8))
      png_error(
          png_,
          "a mask is grey or has a palette, of at most 8 bits and without alpha; one in colour is read by --palette");
    const bool colours = !mask_ && kind & PNG_COLOR_MASK_COLOR;
    stored = {png_get_image_height(png_, info_), png_get_image_width(png_, info_), colours ? 3 : 1};
    orientation = orientation_in(file);
    return true;
  }

  bool decode(uint8_t* pixels) override {
    if (setjmp(png_jmpbuf(png_))) return false;
    if (mask_) {
      png_set_packing(png_);  // a byte for each pixel of fewer bits
    } else {
      png_set_expand(png_);
      png_set_strip_alpha(png_);
    }
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const size_t row = static_cast<size_t>(stored.width * stored.channels);
    const bool wide_values = png_get_bit_depth(png_, info_) == 16;
    if (png_get_rowbytes(png_, info_) != (wide_values ? 2 * row : row))
      png_error(png_, "rows have another size than the header says");
    const auto rows = static_cast<size_t>(stored.height);
    // Each pass of an interlaced image needs the rows of the one before.
    if (wide_values) stored_.resize(2 * row * (passes > 1 ? rows : 1));
    for (int pass = 0; pass < passes; ++pass)
      for (size_t y = 0; y < rows; ++y) {
        uint8_t* from = wide_values ? stored_.data() + (passes > 1 ? 2 * row * y : 0) : pixels + row * y;
        png_read_row(png_, from, nullptr);
        if (wide_values && pass == passes - 1) take_higher(from, row, pixels + row * y);
      }
    wide.images = wide_values;
    png_read_end(png_, nullptr);
    return true;
  }

 private:
  // Of values of 16 bits, the most significant byte first.
  void take_higher(const uint8_t* from, size_t count, uint8_t* to) {
    for (size_t i = 0; i < count; ++i) {
      const int64_t value = from[2 * i] << 8 | from[2 * i + 1];
      to[i] = from[2 * i];
      wide.largest = std::max(wide.largest, value);
      wide.above_zero += value > 0;
      wide.lost += value > 0 && value < 256;
    }
  }
  [[noreturn]] static void fail(png_structp png, png_const_charp why) {
    Decoder& self = *static_cast<PngDecoder*>(png_get_error_ptr(png));
    std::strncpy(self.failure, why, sizeof self.failure - 1);
    png_longjmp(png, 1);
  }
  static void warn(png_structp, png_const_charp) {}
  static void read(png_structp png, png_bytep to, size_t count) {
    PngDecoder& self = *static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (count > self.left_.size()) png_error(png, "it is truncated");
    std::memcpy(to, self.left_.data(), count);
    self.left_.remove_prefix(count);
  }
  const bool mask_;
  std::string_view left_;
  std::vector<uint8_t> stored_;  // values of 16 bits: a row, or all
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

std::unique_ptr<Decoder> png_decoder() { return std::make_unique<PngDecoder>(false); }
std::unique_ptr<Decoder> mask_decoder() { return std::make_unique<PngDecoder>(true); }

}  // namespace codecs

namespace {

// `palette`: of red, green and blue; null: pixels are colours.
std::string encode(const ByteImage& image, png_uint_32 format, const void* palette, size_t colours) {
  png_image header = {};
  header.version = PNG_IMAGE_VERSION;
  header.width = narrow<png_uint_32>(image.width);
  header.height = narrow<png_uint_32>(image.height);
  header.format = format;
  header.colormap_entries = narrow<png_uint_32>(colours);
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  std::string out(size, '\0');
  const int done = png_image_write_to_memory(&header, out.data(), &size, 0, image.bytes.data(), 0, palette);
  check(done != 0, "libpng: ", header.message);
  out.resize(size);
  return out;
}

}  // namespace

std::string encode_png(const ByteImage& image) {
  check(image.channels == 1 || image.channels == 3, "a PNG of ", image.channels, " channels");
  return encode(image, image.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY, nullptr, 0);
}

std::string encode_png(const ByteImage& mask, const std::vector<std::array<uint8_t, 3>>& palette) {
  check(mask.channels == 1 && !palette.empty() && palette.size() <= 256, "a PNG of ", palette.size(), " colours");
  return encode(mask, PNG_FORMAT_RGB_COLORMAP, palette.data(), palette.size());
}

}  // namespace lockstep
