#include "launch/config/sweep_draws.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/philox.h"

namespace lockstep {
namespace {

constexpr double kLn2 = 0.69314718055994530942;

// The natural logarithm of x > 0: 2 artanh((m - 1) / (m + 1)) of the mantissa, a series whose terms fall by 34 or more.
double log_of(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact
  if (m < 0.70710678118654752440) m *= 2, --exponent;
  const double s = (m - 1) / (m + 1), square = s * s;
  double series = 0;
  for (int n = 23; n >= 1; n -= 2) series = series * square + 1.0 / n;
  return exponent * kLn2 + 2 * s * series;
}

// exp(y) by its series about the nearest multiple of log 2.
double exp_of(double y) {
  const double k = std::floor(y / kLn2 + 0.5), r = y - k * kLn2;
  double series = 1;
  for (int n = 20; n >= 1; --n) series = 1 + series * r / n;
  return std::ldexp(series, static_cast<int>(k));  // exact
}

}  // namespace

double sweep_draw(uint64_t seed, int64_t point, std::string_view key) {
  const Philox4 bits = philox(seed, static_cast<uint64_t>(point), hash64(key));
  const uint64_t both = (static_cast<uint64_t>(bits.v[0]) << 32) | bits.v[1];
  return static_cast<double>(both >> 11) * 0x1p-53;
}

std::string value_at(const SweepKey& key, double part) {
  if (!key.interval) {
    const auto count = static_cast<double>(key.values.size());
    return key.values[std::min(static_cast<size_t>(part * count), key.values.size() - 1)];
  }
  const SweepInterval& i = *key.interval;
  const double low = i.log ? log_of(i.low) : i.low, high = i.log ? log_of(i.high) : i.high;
  const double at = low + part * (high - low);
  return str(std::clamp(i.log ? exp_of(at) : at, i.low, i.high));
}

}  // namespace lockstep
