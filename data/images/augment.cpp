#include "data/images/augment.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/philox.h"

namespace lockstep {
namespace {

constexpr int64_t kOne = 1 << 16;  // fixed-point numbers have 16 bits behind the point

// What a random number is for: each has its own, so that switching one change on leaves the others as they are.
enum class Draw : uint64_t {
  kArea,
  kRatio,
  kTall,
  kLeft,
  kTop,
  kFlip,
  kShiftX,
  kShiftY,
  kRotate,
  kBrightness,
  kContrast,
  kSaturation,
  kCutX,
  kCutY
};

class Draws {
 public:
  Draws(uint64_t seed, int64_t epoch, int64_t index)
      : key_(mix(mix(mix(seed, 0x6175676d656e74), static_cast<uint64_t>(epoch)), static_cast<uint64_t>(index))) {}
  double unit(Draw what) const { return bits(what) * 0x1p-32; }  // in [0, 1)
  // In [0, count).
  int64_t below(Draw what, int64_t count) const {
    return static_cast<int64_t>(uint64_t{bits(what)} * static_cast<uint64_t>(count) >> 32);
  }
  // In [-most, most], fixed point.
  int64_t around(Draw what, double most) const {
    return static_cast<int64_t>(std::floor((unit(what) * 2 - 1) * most * kOne + 0.5));
  }

 private:
  uint32_t bits(Draw what) const { return philox(key_, static_cast<uint64_t>(what), 0).v[0]; }
  uint64_t key_;
};

// By their series: the last bits of a C library's own differ between releases and processors.
double sine(double x) {
  double term = x, sum = x;
  for (int n = 2; n < 40; n += 2) sum += term *= -x * x / (n * (n + 1));
  return sum;
}
double cosine(double x) {
  double term = 1, sum = 1;
  for (int n = 1; n < 40; n += 2) sum += term *= -x * x / (n * (n + 1));
  return sum;
}
int64_t fixed(double x) { return static_cast<int64_t>(std::floor(x * kOne + 0.5)); }

uint8_t clipped(int64_t value) { return static_cast<uint8_t>(std::clamp<int64_t>(value, 0, 255)); }
int64_t scaled(int64_t value, int64_t factor) { return (value * factor + kOne / 2) >> 16; }

struct Motion {
  bool flip;
  int64_t dx, dy;
  double angle;
};

// Calls write(x, y, to) for each pixel: it is to come from the place (x, y), fixed-point, which it has before flip,
// turn about the centre and shift.
template <class Write>
void move_pixels(ByteImage& image, const Motion& m, Write write) {
  const int64_t cos = fixed(cosine(m.angle)), sin = fixed(sine(m.angle));
  const int64_t mid_x = image.width - 1, mid_y = image.height - 1;  // twice the centre
  uint8_t* to = image.bytes.data();
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t out_x = 0; out_x < image.width; ++out_x, to += image.channels) {
      const int64_t x = m.flip ? mid_x - out_x : out_x, off_x = 2 * x - mid_x, off_y = 2 * y - mid_y;
      write(((cos * off_x - sin * off_y + mid_x * kOne) >> 1) + m.dx * kOne,
            ((sin * off_x + cos * off_y + mid_y * kOne) >> 1) + m.dy * kOne, to);
    }
}

// The pixel at (x, y); null outside.
const uint8_t* pixel_of(const ByteImage& image, int64_t x, int64_t y) {
  if (x < 0 || y < 0 || x >= image.width || y >= image.height) return nullptr;
  return image.bytes.data() + (y * image.width + x) * image.channels;
}

// Bilinear; outside the image is black.
void move(ByteImage& image, const Motion& motion) {
  const ByteImage from = image;
  move_pixels(image, motion, [&from](int64_t x, int64_t y, uint8_t* to) {
    const int64_t left = x >> 16, top = y >> 16, part_x = x & (kOne - 1), part_y = y & (kOne - 1);
    const uint8_t* corners[] = {pixel_of(from, left, top), pixel_of(from, left + 1, top), pixel_of(from, left, top + 1),
                                pixel_of(from, left + 1, top + 1)};
    const int64_t weights[] = {(kOne - part_x) * (kOne - part_y), part_x * (kOne - part_y), (kOne - part_x) * part_y,
                               part_x * part_y};
    for (int64_t c = 0; c < from.channels; ++c) {
      int64_t sum = int64_t{1} << 31;
      for (int i = 0; i < 4; ++i)
        if (corners[i]) sum += corners[i][c] * weights[i];
      to[c] = static_cast<uint8_t>(sum >> 32);
    }
  });
}

void move_mask(ByteImage& mask, const Motion& motion) {
  const ByteImage from = mask;
  move_pixels(mask, motion, [&from](int64_t x, int64_t y, uint8_t* to) {
    const uint8_t* nearest = pixel_of(from, (x + kOne / 2) >> 16, (y + kOne / 2) >> 16);
    *to = nearest ? *nearest : Augmentation::kOutside;
  });
}

int64_t grey_of(const uint8_t* rgb) { return (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + kOne / 2) >> 16; }

// Factors are fixed-point.
void recolour(ByteImage& image, int64_t brightness, int64_t contrast, int64_t saturation) {
  std::vector<uint8_t>& bytes = image.bytes;
  const bool colours = image.channels == 3;
  if (brightness != kOne)
    for (uint8_t& b : bytes) b = clipped(scaled(b, brightness));
  if (contrast != kOne) {
    int64_t sum = 0;
    for (size_t i = 0; i < bytes.size(); i += colours ? 3 : 1) sum += colours ? grey_of(bytes.data() + i) : bytes[i];
    const int64_t values = static_cast<int64_t>(bytes.size()) / (colours ? 3 : 1), mean = (sum + values / 2) / values;
    for (uint8_t& b : bytes) b = clipped(mean + scaled(b - mean, contrast));
  }
  if (saturation != kOne && colours)
    for (size_t i = 0; i < bytes.size(); i += 3) {
      const int64_t grey = grey_of(bytes.data() + i);
      for (size_t c = i; c < i + 3; ++c) bytes[c] = clipped(grey + scaled(bytes[c] - grey, saturation));
    }
}

// Blackens a square of `side` pixels around (x, y), as far as it lies in the image.
void cut_out(ByteImage& image, int64_t side, int64_t x, int64_t y) {
  const int64_t left = std::max<int64_t>(0, x - side / 2), right = std::min(image.width, x - side / 2 + side);
  const int64_t top = std::max<int64_t>(0, y - side / 2), bottom = std::min(image.height, y - side / 2 + side);
  for (int64_t row = top; row < bottom; ++row)
    std::fill_n(image.bytes.data() + (row * image.width + left) * image.channels, (right - left) * image.channels,
                uint8_t{0});
}

}  // namespace

std::vector<Field> fields(AugmentOptions& o) {
  std::vector<Field> out = {
      field("augment.crop_area", o.crop_area,
            "least share of an image's area that a random crop keeps, which is resized; 1: no such crop")
          .with_range(0.01, 1),
      field("augment.flip", o.flip, "probability of a horizontal flip").with_range(0, 1),
      field("augment.shift", o.shift, "most that an image is shifted, in x and in y: padding and a random crop")
          .with_unit("pixels")
          .with_range(0, 1 << 14),
      field("augment.rotate", o.rotate, "largest angle that an image is turned by, either way")
          .with_unit("degrees")
          .with_range(0, 180),
      field("augment.brightness", o.brightness, "values are multiplied by a factor in [1 - b, 1 + b]").with_range(0, 1),
      field("augment.contrast", o.contrast,
            "distances from the image's mean brightness are multiplied by a factor in [1 - c, 1 + c]")
          .with_range(0, 1),
      field("augment.saturation", o.saturation,
            "distances from a pixel's grey are multiplied by a factor in [1 - s, 1 + s]; images of 3 channels")
          .with_range(0, 1),
      field("augment.cutout", o.cutout, "side of a square at a random place that is made black; 0: none")
          .with_unit("pixels")
          .with_range(0, 1 << 14),
      field("augment.mixup", o.mixup,
            "each sample is mixed with another one, and its loss is of both labels: alpha of the distribution "
            "Beta(alpha, "
            "alpha) that shares are drawn from, such as 0.2; 0: none. Images and tables with a label or number each")
          .with_range(0, kMostMixup)};
  for (Field& f : out) f.absent_at_default = true;
  return out;
}

PixelBox Augmentation::box(int64_t image_height, int64_t image_width, int64_t height, int64_t width, int64_t epoch,
                           int64_t index) const {
  if (options_.crop_area >= 1) return centred_box(image_height, image_width, height, width);
  const Draws draws(seed_, epoch, index);
  const double share = options_.crop_area + (1 - options_.crop_area) * draws.unit(Draw::kArea);
  const double area = share * static_cast<double>(image_height) * static_cast<double>(image_width);
  double ratio = (0.75 + 0.25 * draws.unit(Draw::kRatio));  // width to height, beside the output's
  if (draws.below(Draw::kTall, 2) == 0) ratio = 1 / ratio;
  ratio *= static_cast<double>(width) / static_cast<double>(height);
  const auto side = [](double length, int64_t most) {
    return std::clamp<int64_t>(static_cast<int64_t>(length + 0.5), 1, most);
  };
  const int64_t w = side(std::sqrt(area * ratio), image_width), h = side(std::sqrt(area / ratio), image_height);
  const int64_t left = draws.below(Draw::kLeft, image_width - w + 1);
  const int64_t top = draws.below(Draw::kTop, image_height - h + 1);
  return {left, top, left + w, top + h};
}

bool Augmentation::changes() const {
  const AugmentOptions& o = options_;
  return o.flip > 0 || o.shift > 0 || o.rotate > 0 || o.brightness > 0 || o.contrast > 0 || o.saturation > 0 ||
         o.cutout > 0;
}

void Augmentation::apply(ByteImage& image, int64_t epoch, int64_t index, ByteImage* mask) const {
  if (!changes()) return;
  const AugmentOptions& o = options_;
  const Draws draws(seed_, epoch, index);
  const Motion m{draws.unit(Draw::kFlip) < o.flip, draws.below(Draw::kShiftX, 2 * o.shift + 1) - o.shift,
                 draws.below(Draw::kShiftY, 2 * o.shift + 1) - o.shift,
                 (draws.unit(Draw::kRotate) * 2 - 1) * o.rotate * std::numbers::pi / 180};
  if (m.flip || m.dx != 0 || m.dy != 0 || o.rotate > 0) {
    move(image, m);
    if (mask) move_mask(*mask, m);
  }
  recolour(image, kOne + draws.around(Draw::kBrightness, o.brightness),
           kOne + draws.around(Draw::kContrast, o.contrast), kOne + draws.around(Draw::kSaturation, o.saturation));
  if (o.cutout > 0)
    cut_out(image, o.cutout, draws.below(Draw::kCutX, image.width), draws.below(Draw::kCutY, image.height));
}

}  // namespace lockstep
