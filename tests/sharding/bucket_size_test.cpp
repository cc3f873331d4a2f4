// Advice on the size of buckets: found again from transfers whose cost is known, and silent where there is nothing to
// say.
#include "sharding/bucket_size.h"
#include "sharding/transfer_log.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::bucket_size_test {
namespace {

// Reductions that cost a + bytes / b, one after the other, all launched at the start, in a step whose backward pass
// ends at once.
std::vector<Transfer> transfers(const std::vector<double>& mb, double a, double b) {
  std::vector<Transfer> out;
  double at = 0;
  for (size_t i = 0; i < mb.size(); ++i) {
    Transfer t{Transfer::Kind::kReduce, "g" + std::to_string(i)};
    t.bytes = static_cast<int64_t>(mb[i] * 1e6);
    t.needed_s = at;
    t.ready_s = at += a + static_cast<double>(t.bytes) / b;
    out.push_back(t);
  }
  return out;
}

TEST(BucketSizeAdvice, FindsTheSizeThatCostsLeast) {
  const double a = 1e-3, b = 1e9;
  const std::vector<double> mb{1, 1, 1.5, 2, 1, 3, 0.5};
  BucketSizeAdvice advice;
  for (int step = 0; step < 5; ++step) advice.add(transfers(mb, a, b), 0.05);
  double total = 0;
  for (double m : mb) total += m;
  EXPECT_NEAR(advice.waiting(), (total * 1e-3 + 7e-3) / 0.05, 1e-9);
  EXPECT_NEAR(advice.waits().at("reduce g3"), 3e-3, 1e-9);
  ASSERT_TRUE(advice.better(1).has_value());
  EXPECT_NEAR(*advice.better(1), std::sqrt(total * 1e6 * a * b) / 1e6, 0.01);
  EXPECT_FALSE(advice.better(3).has_value()) << "near enough";
  EXPECT_TRUE(advice.better(20).has_value()) << "far too large";
}

TEST(BucketSizeAdvice, IsSilentWithoutEvidence) {
  BucketSizeAdvice fast, uniform;
  for (int step = 0; step < 5; ++step) {
    fast.add(transfers({1, 2, 3}, 1e-3, 1e9), 1);  // under a twentieth of the step
    uniform.add(transfers({1, 1, 1}, 1e-3, 1e9), 0.01);
  }
  EXPECT_FALSE(fast.better(100).has_value());
  EXPECT_FALSE(uniform.better(100).has_value()) << "one size says nothing of another";
  EXPECT_FALSE(BucketSizeAdvice().better(1).has_value());
}

}  // namespace
}  // namespace lockstep::bucket_size_test
