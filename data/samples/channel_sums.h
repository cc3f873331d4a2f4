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
  double largest = 0;            // magnitude
  double lost = 0;               // the most by which rounding to 32 bits changes a value
  double first = 0;              // value; of distances from it, likewise:
  double shifted_mean = 0, shifted_squares = 0;

  void add(double value) {
    largest = std::max(largest, std::abs(value));
    lost = std::max(lost, std::abs(value - static_cast<double>(static_cast<float>(value))));
    if (count++ == 0) first = value;
    const auto n = static_cast<double>(count);
    const double away = value - mean, shifted = value - first, shifted_away = shifted - shifted_mean;
    mean += away / n;
    squares += away * (value - mean);
    shifted_mean += shifted_away / n;
    shifted_squares += shifted_away * (shifted - shifted_mean);
  }
  // After the last value: of those that need an offset, mean and spread are taken from the distances, which have not
  // lost what 64 bits lose of large numbers. The others stay as earlier versions measured them.
  void settle() {
    if (offset(mean, scale()) != 0) mean = first + shifted_mean, squares = shifted_squares;
  }
  // What the feature is divided by: its standard deviation, or 1 where all values are one, or differ by less than the
  // smallest normal number of 32 bits.
  double scale() const {
    const double deviation = std::sqrt(squares / static_cast<double>(std::max<int64_t>(1, count)));
    return deviation >= std::numeric_limits<float>::min() ? deviation : 1.0;
  }
  // What is to be subtracted from the values before they are rounded to 32 bits, where they are normalised by this mean
  // and deviation: the mean, where rounding them as they are changes one by more than a millionth of a deviation, or
  // might by a thousandth; else 0, so that they are stored as they are.
  double offset(double by_mean, double by_deviation) const {
    const bool keeps = lost <= 0x1p-20 * by_deviation && !loses_bits(largest, by_deviation);
    const bool fits = largest + std::abs(by_mean) <= std::numeric_limits<float>::max();
    return keeps || !fits ? 0.0 : by_mean;
  }
  // Values of which not even 64 bits keep a thousandth of a deviation, or of which all are one though 64 bits do not
  // hold every integer of their size.
  bool beyond_doubles() const { return squares > 0 ? 0x1p-53 * largest > 1e-3 * scale() : largest > 0x1p53; }
  // Whether rounding numbers of this magnitude to 32 bits may change them by more than a thousandth of a deviation.
  static bool loses_bits(double magnitude, double deviation) { return 0x1p-24 * magnitude > 1e-3 * deviation; }
};

}  // namespace lockstep
