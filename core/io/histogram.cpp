#include "core/io/histogram.h"

#include <array>
#include <bit>
#include <cmath>

namespace lockstep {
namespace {

// Exponent and the first bit of the fraction: a number's bits without sign, less the others of the fraction.
constexpr int kShift = 22, kBuckets = 512;

double lower_edge(int magnitude) { return std::bit_cast<float>(static_cast<uint32_t>(magnitude) << kShift); }

}  // namespace

int Histogram::bucket_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const int magnitude = static_cast<int>((bits & 0x7FFFFFFF) >> kShift);
  return value == 0 || bits >> 31 == 0 ? magnitude : -1 - magnitude;
}

std::pair<double, double> Histogram::edges(int bucket) {
  if (bucket < 0) {
    const auto [lower, upper] = edges(-1 - bucket);
    return {-upper, -lower};
  }
  return {lower_edge(bucket), lower_edge(bucket + 1)};
}

void Histogram::add(const float* values, int64_t n) {
  std::array<int64_t, 2 * kBuckets> dense{};
  for (int64_t i = 0; i < n; ++i)
    if (std::isfinite(values[i])) ++dense[static_cast<size_t>(bucket_of(values[i]) + kBuckets)];
  for (int i = 0; i < 2 * kBuckets; ++i)
    if (const int64_t count = dense[static_cast<size_t>(i)]) counts_[i - kBuckets] += count;
}

void Histogram::add(const Histogram& other) {
  for (const auto& [bucket, count] : other.counts_) counts_[bucket] += count;
}

int64_t Histogram::count() const {
  int64_t sum = 0;
  for (const auto& [_, count] : counts_) sum += count;
  return sum;
}

}  // namespace lockstep
