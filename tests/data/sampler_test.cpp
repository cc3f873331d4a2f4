// The order of samples is a permutation, for every size, and another one for each seed and epoch.
#include "data/samples/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace lockstep::sampler_test {
namespace {

std::vector<int64_t> order(int64_t n, uint64_t seed, int64_t epoch, bool shuffle = true) {
  Sampler sampler(n, seed, epoch, shuffle);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(sampler(i));
  return out;
}

TEST(Sampler, IsAPermutationOfEverySize) {
  std::vector<int64_t> sizes;
  for (int64_t n = 1; n <= 300; ++n) sizes.push_back(n);
  for (int64_t n : {1000, 1023, 1024, 1025, 9999, 10000, 65535, 65536, 65537, 99991}) sizes.push_back(n);
  for (int64_t n : sizes) {
    std::vector<bool> seen(static_cast<size_t>(n));
    for (int64_t value : order(n, 7, n % 5)) {
      ASSERT_GE(value, 0);
      ASSERT_LT(value, n);
      ASSERT_FALSE(seen[static_cast<size_t>(value)]) << "twice " << value << " of " << n;
      seen[static_cast<size_t>(value)] = true;
    }
  }
}

TEST(Sampler, LargeSizesStayInRangeAndDiffer) {
  for (int64_t n : {int64_t{1} << 40, (int64_t{1} << 40) + 12345, int64_t{3} << 50}) {
    Sampler sampler(n, 1, 2, true);
    std::vector<int64_t> values;
    for (int64_t i = 0; i < 1000; ++i) values.push_back(sampler(i * (n / 1000)));
    for (int64_t v : values) EXPECT_TRUE(v >= 0 && v < n);
    std::sort(values.begin(), values.end());
    EXPECT_EQ(std::adjacent_find(values.begin(), values.end()), values.end());
  }
}

TEST(Sampler, DiffersByEpochAndSeedAndRepeatsItself) {
  EXPECT_EQ(order(1000, 1, 0), order(1000, 1, 0));
  EXPECT_NE(order(1000, 1, 0), order(1000, 1, 1));
  EXPECT_NE(order(1000, 1, 0), order(1000, 2, 0));
  EXPECT_NE(order(1000, 0, 1), order(1000, 1, 0));
}

TEST(Sampler, WithoutShuffleIsTheIdentity) {
  auto plain = order(100, 5, 3, false);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(plain[static_cast<size_t>(i)], i);
}

// Chi-square of where sample 0 lands, over 20,000 epochs and 50 places: 49 degrees, 99.99% below 96.
TEST(Sampler, EveryPlaceIsEquallyLikely) {
  for (int64_t position : {0, 1, 49}) {
    std::vector<double> count(50);
    for (int64_t epoch = 0; epoch < 20000; ++epoch) ++count[static_cast<size_t>(Sampler(50, 3, epoch, true)(position))];
    double chi = 0;
    for (double c : count) chi += (c - 400) * (c - 400) / 400;
    EXPECT_LT(chi, 96);
  }
}

// Neighbours do not stay neighbours: of n - 1 pairs about 2 still follow each other.
TEST(Sampler, BreaksUpRuns) {
  auto values = order(10000, 11, 4);
  int64_t runs = 0;
  for (size_t i = 1; i < values.size(); ++i) runs += std::abs(values[i] - values[i - 1]) == 1;
  EXPECT_LT(runs, 15);
}

}  // namespace
}  // namespace lockstep::sampler_test
