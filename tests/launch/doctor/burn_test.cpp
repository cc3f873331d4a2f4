#include "launch/doctor/burn.h"

#include <gtest/gtest.h>

#include "core/tensor/raw_ops.h"
#include "tests/support/run_ranks.h"

namespace lockstep::burn_test {
namespace {

void disturb(const Tensor& t) {
  const Tensor flat = t.detach().flatten();
  raw::copy(flat.slice(0, 5, 6), Tensor::full({1}, 17));
}

// What rank `rank` computes is disturbed in passes [from, to).
std::vector<std::string> findings(int ranks, int rank, const std::string& part, int64_t from, int64_t to) {
  std::vector<std::string> out;
  testing::run_ranks(ranks, [&](Communicator& comm) {
    BurnOptions o;
    o.memory = 1 << 20;
    int64_t passes = 0;
    o.seconds = 3;  // one for each pass
    o.elapsed = [&] { return static_cast<double>(passes); };
    o.progress = [&](double, int64_t n) { passes = n; };
    o.disturb = [&](int64_t pass, const std::string& name, const Tensor& t) {
      if (comm.rank() == rank && name.starts_with(part) && pass >= from && pass < to) disturb(t);
    };
    const Burned burned = burn(comm, o);
    EXPECT_EQ(passes, 3);
    EXPECT_EQ(burned.passes, 3 * ranks);
    if (comm.rank() == 0) out = burned.findings;
  });
  return out;
}

constexpr int64_t kAlways = 1 << 30;

TEST(Burn, RanksThatComputeTheSameAreWell) {
  EXPECT_TRUE(findings(1, -1, "", 0, 0).empty());
  EXPECT_TRUE(findings(3, -1, "", 0, 0).empty());
}

TEST(Burn, ARankThatComputesOtherValuesIsNamed) {
  for (const std::string part : {"products in fp32", "products in bf16", "attention", "norms", "memory"}) {
    const auto always = findings(3, 2, part, 1, kAlways), later = findings(3, 1, part, 2, 3);
    ASSERT_EQ(always.size(), 1u) << part;
    EXPECT_EQ(always[0].find("rank 2 on "), 0u) << always[0];
    EXPECT_NE(always[0].find(part), std::string::npos) << always[0];
    EXPECT_NE(always[0].find("first in pass 1"), std::string::npos) << always[0];
    ASSERT_EQ(later.size(), 1u) << part;
    EXPECT_EQ(later[0].find("rank 1 on "), 0u) << later[0];
    EXPECT_NE(later[0].find("in 1 of "), std::string::npos) << later[0];
  }
}

TEST(Burn, OneRankIsComparedWithItself) {
  const auto once = findings(1, 0, "attention", 2, 3);
  ASSERT_EQ(once.size(), 1u);
  EXPECT_NE(once[0].find("attention in 1 of "), std::string::npos) << once[0];
}

TEST(Burn, OfTwoRanksNobodyCanTell) {
  const auto differ = findings(2, 1, "attention", 1, kAlways);
  ASSERT_EQ(differ.size(), 1u);
  EXPECT_NE(differ[0].find("no more than half of the ranks"), std::string::npos) << differ[0];
  EXPECT_NE(differ[0].find("agree on attention"), std::string::npos) << differ[0];
}

}  // namespace
}  // namespace lockstep::burn_test
