// Mean and standard deviation of what is imported: of images by channel, from sums of bytes that are exact in any
// order, and of features. Plain values.
#pragma once

#include <algorithm>
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

// Mean and spread of a feature's values, one after another. Welford, "Note on a method for calculating corrected sums
// of squares and products" (1962).
struct FeatureMoments {
  int64_t count = 0;
  double mean = 0, squares = 0;  // sum of squared distances from the mean

  void add(double value) {
    const double away = value - mean;
    mean += away / static_cast<double>(++count);
    squares += away * (value - mean);
  }
  // What the feature is divided by: its standard deviation, or 1 where all values are one, or differ by less than the
  // smallest normal number of 32 bits.
  double scale() const {
    const double deviation = std::sqrt(squares / static_cast<double>(std::max<int64_t>(1, count)));
    return deviation >= std::numeric_limits<float>::min() ? deviation : 1.0;
  }
};

}  // namespace lockstep
