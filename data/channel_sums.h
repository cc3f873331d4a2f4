// Sums of bytes and of their squares, by channel: mean and standard deviation of images, exact and in any order.
// A plain value.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep {

struct ChannelSums {
  std::vector<uint64_t> sum, square;
  int64_t pixels = 0;

  explicit ChannelSums(int64_t channels) : sum(static_cast<size_t>(channels)), square(sum) {}
  void add(const uint8_t* bytes, int64_t count) {
    pixels += count;
    for (int64_t p = 0; p < count; ++p)
      for (size_t c = 0; c < sum.size(); ++c, ++bytes) {
        sum[c] += *bytes;
        square[c] += uint64_t{*bytes} * *bytes;
      }
  }
  void add(const ChannelSums& o) {
    pixels += o.pixels;
    for (size_t c = 0; c < sum.size(); ++c) sum[c] += o.sum[c], square[c] += o.square[c];
  }
  // Of values / 255. A constant channel has a standard deviation of 1: it is only shifted.
  void moments(std::vector<double>& mean, std::vector<double>& stddev) const {
    for (size_t c = 0; c < sum.size(); ++c) {
      const double n = static_cast<double>(pixels) * 255.0;
      const double m = static_cast<double>(sum[c]) / n, s = static_cast<double>(square[c]) / (n * 255.0);
      const double variance = s - m * m;
      mean.push_back(m);
      stddev.push_back(variance > 1e-12 ? std::sqrt(variance) : 1.0);
    }
  }
};

// What a feature with this variance is divided by: its standard deviation, or 1 where all values are one, or differ by
// less than the smallest normal number of 32 bits.
inline double feature_scale(double variance) {
  const double deviation = std::sqrt(variance);
  return deviation >= std::numeric_limits<float>::min() ? deviation : 1.0;
}

}  // namespace lockstep
