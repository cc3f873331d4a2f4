// Philox against its authors' known answers; initial values and random sites as pure functions.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "core/base/philox.h"
#include "core/device/context.h"
#include "core/nn/init.h"

namespace lockstep::random_test {
namespace {

std::vector<uint32_t> words(const Philox4& r) { return {r.v[0], r.v[1], r.v[2], r.v[3]}; }

// philox4x32 10 rounds, from kat_vectors of the Random123 distribution.
TEST(Philox, GivesItsAuthorsKnownAnswers) {
  EXPECT_EQ(words(philox(0, 0, 0)), (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(philox(~0ull, ~0ull, ~0ull)),
            (std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(philox(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull)),
            (std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformCoversItsHalfOpenInterval) {
  EXPECT_EQ(uniform_of(0), 0.0f);
  EXPECT_LT(uniform_of(~0u), 1.0f);
  EXPECT_EQ(uniform_of(~0u), 1.0f - 0x1p-24f);
  double sum = 0;
  for (uint64_t i = 0; i < 100000; ++i) sum += uniform_of(philox(1, i, 2).v[i % 4]);
  EXPECT_NEAR(sum / 1e5, 0.5, 5 * std::sqrt(1.0 / 12 / 1e5));
}

std::vector<float> filled(const Init& init, uint64_t seed, const char* name, int64_t begin, int64_t end) {
  std::vector<float> out(static_cast<size_t>(end - begin));
  fill_initial(init, seed, name, begin, end, out.data());
  return out;
}

TEST(InitialValues, OfAnyRangeAreThoseOfTheWhole) {
  for (const Init& init : {Init::normal(0.02), Init::uniform(0.5), Init::constant(3)}) {
    const auto whole = filled(init, 7, "blocks.0.up.weight", 0, 103);
    for (int64_t begin = 0; begin <= 20; ++begin)
      for (int64_t end = begin; end <= 103; end += end < begin + 10 ? 1 : 13)
        ASSERT_EQ(filled(init, 7, "blocks.0.up.weight", begin, end),
                  std::vector<float>(whole.begin() + begin, whole.begin() + end))
            << begin << " to " << end;
  }
}

TEST(InitialValues, DependOnSeedAndName) {
  const auto a = filled(Init::normal(1), 7, "a", 0, 64);
  EXPECT_NE(a, filled(Init::normal(1), 8, "a", 0, 64));
  EXPECT_NE(a, filled(Init::normal(1), 7, "b", 0, 64));
  EXPECT_EQ(a, filled(Init::normal(1), 7, "a", 0, 64));
}

// Moments of a sample of n lie within five standard errors.
TEST(InitialValues, HaveTheMomentsOfTheirDistribution) {
  const int64_t n = 200000;
  const double root = std::sqrt(static_cast<double>(n));
  for (double deviation : {0.02, 1.0}) {
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    int64_t beyond_two = 0;
    for (float v : filled(Init::normal(deviation), 3, "w", 0, n)) {
      const double z = v / deviation;
      m1 += z, m2 += z * z, m3 += z * z * z, m4 += z * z * z * z;
      beyond_two += std::abs(z) > 2;
      ASSERT_LT(std::abs(z), 6);
    }
    EXPECT_NEAR(m1 / n, 0, 5 / root);
    EXPECT_NEAR(m2 / n, 1, 5 * std::sqrt(2.0) / root);
    EXPECT_NEAR(m3 / n, 0, 5 * std::sqrt(15.0) / root);
    EXPECT_NEAR(m4 / n, 3, 5 * std::sqrt(96.0) / root);
    EXPECT_NEAR(static_cast<double>(beyond_two) / n, 0.0455003, 5 * std::sqrt(0.0455 * 0.9545) / root);
  }
  double m1 = 0, m2 = 0;
  for (float v : filled(Init::uniform(0.25), 3, "w", 0, n)) {
    ASSERT_LE(std::abs(v), 0.25f);
    m1 += v, m2 += v * v;
  }
  EXPECT_NEAR(m1 / n, 0, 5 * 0.25 / std::sqrt(3.0) / root);
  EXPECT_NEAR(m2 / n, 0.0625 / 3, 5 * 0.0625 * std::sqrt(4.0 / 45) / root);
}

TEST(RandomSites, DependOnNameAndCallAndBeginAnewInEachMicroBatch) {
  std::vector<uint64_t> first, second;
  for (auto* out : {&first, &second}) {
    WithRandom with({1, 2, nullptr});
    for (const char* name : {"drop1", "drop2", "drop1", "drop1"}) out->push_back(random_site(name));
  }
  EXPECT_EQ(first, second);
  EXPECT_EQ(std::set<uint64_t>(first.begin(), first.end()).size(), first.size());
}

}  // namespace
}  // namespace lockstep::random_test
