#include "data/images/resize.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/base/error.h"

namespace lockstep {
namespace {

constexpr int kWeightBits = 22;

// For each output position the input pixels that it depends on, and their weights.
struct Taps {
  int64_t most = 0;  // of one position
  std::vector<int64_t> first, count;
  std::vector<uint32_t> weights;  // [positions, most]
};

Taps taps_of(int64_t begin, int64_t end, int64_t in, int64_t out) {
  const double scale = static_cast<double>(end - begin) / static_cast<double>(out), stretch = std::max(scale, 1.0);
  Taps taps;
  taps.most = static_cast<int64_t>(std::ceil(stretch)) * 2 + 1;
  taps.weights.resize(static_cast<size_t>(out * taps.most));
  std::vector<double> weights(static_cast<size_t>(taps.most));
  for (int64_t at = 0; at < out; ++at) {
    const double centre = static_cast<double>(begin) + (static_cast<double>(at) + 0.5) * scale, per = 1.0 / stretch;
    const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(centre - stretch + 0.5));
    const int64_t count = std::min(in, static_cast<int64_t>(centre + stretch + 0.5)) - first;
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double distance = std::abs((static_cast<double>(i + first) - centre + 0.5) * per);
      sum += weights[static_cast<size_t>(i)] = distance < 1.0 ? 1.0 - distance : 0.0;
    }
    for (int64_t i = 0; i < count; ++i)
      taps.weights[static_cast<size_t>(at * taps.most + i)] =
          static_cast<uint32_t>(0.5 + weights[static_cast<size_t>(i)] / sum * (1 << kWeightBits));
    taps.first.push_back(first);
    taps.count.push_back(count);
  }
  return taps;
}

// Sums of values times weights fit 32 bits: weights add up to 2^22, and a value has 8 bits.
constexpr uint32_t kHalf = 1u << (kWeightBits - 1);
uint8_t rounded(uint32_t sum) { return static_cast<uint8_t>(std::min(sum >> kWeightBits, 255u)); }

// Rows of `from`, resampled along x. kChannels: 0 where they are not known here.
template <int kChannels>
void along_x(const uint8_t* from, int64_t row_bytes, int64_t rows, int64_t channels, const Taps& taps, uint8_t* to) {
  const int64_t c_count = kChannels ? kChannels : channels, step = kChannels ? kChannels : 1;
  for (int64_t y = 0; y < rows; ++y, from += row_bytes)
    for (size_t x = 0; x < taps.first.size(); ++x) {
      const uint32_t* weights = taps.weights.data() + static_cast<int64_t>(x) * taps.most;
      const uint8_t* pixel = from + taps.first[x] * c_count;
      for (int64_t c = 0; c < c_count; c += step) {
        uint32_t sums[kChannels ? kChannels : 1];
        std::fill(std::begin(sums), std::end(sums), kHalf);
        for (int64_t i = 0; i < taps.count[x]; ++i)
          for (int64_t k = 0; k < step; ++k) sums[k] += pixel[i * c_count + c + k] * weights[i];
        for (uint32_t sum : sums) *to++ = rounded(sum);
      }
    }
}

auto along_x_of(int64_t channels) { return channels == 3 ? along_x<3> : channels == 1 ? along_x<1> : along_x<0>; }

// Columns of `from`, `width_bytes` of each row of `row_bytes`, resampled along y. `from` is row number `first_row`.
void along_y(const uint8_t* from, int64_t first_row, int64_t row_bytes, int64_t width_bytes, const Taps& taps,
             uint8_t* to) {
  std::vector<uint32_t> sums(static_cast<size_t>(width_bytes));
  for (size_t y = 0; y < taps.first.size(); ++y) {
    std::fill(sums.begin(), sums.end(), kHalf);
    for (int64_t i = 0; i < taps.count[y]; ++i) {
      const uint32_t weight = taps.weights[y * static_cast<size_t>(taps.most) + static_cast<size_t>(i)];
      const uint8_t* row = from + (taps.first[y] + i - first_row) * row_bytes;
      for (int64_t x = 0; x < width_bytes; ++x) sums[static_cast<size_t>(x)] += row[x] * weight;
    }
    for (uint32_t sum : sums) *to++ = rounded(sum);
  }
}

// Resamples along both axes, y first.
void along_y_and_x(const uint8_t* pixels, int64_t image_width, int64_t channels, Taps x, const Taps& y, uint8_t* to) {
  const int64_t first = x.first.front(), width_bytes = (x.first.back() + x.count.back() - first) * channels;
  const int64_t height = std::ssize(y.first);
  std::vector<uint8_t> low(static_cast<size_t>(height * width_bytes));
  along_y(pixels + first * channels, 0, image_width * channels, width_bytes, y, low.data());
  for (int64_t& at : x.first) at -= first;
  along_x_of(channels)(low.data(), width_bytes, height, channels, x, to);
}

void check_box(int64_t image_height, int64_t image_width, const PixelBox& box, int64_t height, int64_t width) {
  check(box.left >= 0 && box.top >= 0 && box.left < box.right && box.top < box.bottom && box.right <= image_width &&
            box.bottom <= image_height && height > 0 && width > 0,
        "a box of an image of ", image_height, " x ", image_width, " to ", height, " x ", width);
}

}  // namespace

ByteImage resize(const uint8_t* pixels, int64_t image_height, int64_t image_width, int64_t channels,
                 const PixelBox& box, int64_t height, int64_t width) {
  check_box(image_height, image_width, box, height, width);
  ByteImage out{height, width, channels, std::vector<uint8_t>(static_cast<size_t>(height * width * channels))};
  const Taps x = taps_of(box.left, box.right, image_width, width);
  const Taps y = taps_of(box.top, box.bottom, image_height, height);
  const bool both = (box.left != 0 || box.right != width) && (box.top != 0 || box.bottom != height);
  if (both && height < image_height && image_height - height > 2 * (image_width - width)) {
    along_y_and_x(pixels, image_width, channels, x, y, out.bytes.data());
    return out;
  }
  const int64_t first = y.first.front(), last = y.first.back() + y.count.back(), row_bytes = width * channels;
  std::vector<uint8_t> narrow;
  const uint8_t* rows = pixels + first * image_width * channels;
  if (box.left != 0 || box.right != width) {
    narrow.resize(static_cast<size_t>((last - first) * row_bytes));
    along_x_of(channels)(rows, image_width * channels, last - first, channels, x, narrow.data());
    rows = narrow.data();
  } else if (image_width != width) {  // the box's columns are the output's
    narrow.resize(static_cast<size_t>((last - first) * row_bytes));
    for (int64_t r = 0; r < last - first; ++r)
      std::copy_n(rows + r * image_width * channels, row_bytes, narrow.data() + r * row_bytes);
    rows = narrow.data();
  }
  if (box.top == 0 && box.bottom == height) std::copy_n(rows, out.bytes.size(), out.bytes.data());
  else along_y(rows, first, row_bytes, row_bytes, y, out.bytes.data());
  return out;
}

ByteImage resize_nearest(const uint8_t* pixels, int64_t image_height, int64_t image_width, int64_t channels,
                         const PixelBox& box, int64_t height, int64_t width) {
  check_box(image_height, image_width, box, height, width);
  ByteImage out{height, width, channels, std::vector<uint8_t>(static_cast<size_t>(height * width * channels))};
  uint8_t* to = out.bytes.data();
  for (int64_t y = 0; y < height; ++y) {
    const uint8_t* row =
        pixels + (box.top + (2 * y + 1) * (box.bottom - box.top) / (2 * height)) * image_width * channels;
    for (int64_t x = 0; x < width; ++x, to += channels)
      std::copy_n(row + (box.left + (2 * x + 1) * (box.right - box.left) / (2 * width)) * channels, channels, to);
  }
  return out;
}

PixelBox centred_box(int64_t image_height, int64_t image_width, int64_t height, int64_t width) {
  const int64_t w = std::clamp<int64_t>(image_height * width / height, 1, image_width);
  const int64_t h = std::clamp<int64_t>(image_width * height / width, 1, image_height);
  const int64_t left = (image_width - w) / 2, top = (image_height - h) / 2;
  return {left, top, left + w, top + h};
}

}  // namespace lockstep
