#include "launch/sweep/halving.h"

#include <gtest/gtest.h>

namespace lockstep::sweep_halving_test {
namespace {

using Points = std::vector<int64_t>;

TEST(SweepHalving, EachRungHasAThirdOfThePointsAndThreeTimesTheSteps) {
  EXPECT_EQ(rungs_of({3, 10, 90, ""}, 27), (std::vector<Rung>{{10, 27}, {30, 9}, {90, 3}}));
  EXPECT_EQ(steps_of_rungs(rungs_of({3, 10, 90, ""}, 27)), 270 + 9 * 20 + 3 * 60);
  EXPECT_EQ(rungs_of({3, 10, 100, ""}, 27), (std::vector<Rung>{{10, 27}, {30, 9}, {90, 3}, {100, 1}}));
  EXPECT_EQ(rungs_of({2, 1, 8, ""}, 5), (std::vector<Rung>{{1, 5}, {2, 2}, {8, 1}}));
}

TEST(SweepHalving, TheLastPointTrainsToTheEnd) {
  EXPECT_EQ(rungs_of({3, 10, 1000, ""}, 3), (std::vector<Rung>{{10, 3}, {1000, 1}}));
  EXPECT_EQ(rungs_of({3, 10, 1000, ""}, 2), (std::vector<Rung>{{10, 2}, {1000, 1}}));
  EXPECT_EQ(rungs_of({3, 10, 1000, ""}, 1), (std::vector<Rung>{{1000, 1}}));
  EXPECT_EQ(rungs_of({1000, 1, int64_t{1} << 60, ""}, 9).back(), (Rung{int64_t{1} << 60, 1}));
}

TEST(SweepHalving, TheBestGoOnInTheOrderOfTheirNumbers) {
  const std::vector<std::pair<int64_t, std::optional<double>>> values{{4, 0.1}, {0, 0.3}, {1, {}}, {3, 0.2}, {2, 0.2}};
  EXPECT_EQ(best_points(values, 2, false), (Points{2, 4}));
  EXPECT_EQ(best_points(values, 2, true), (Points{0, 2}));
  EXPECT_EQ(best_points(values, 5, false), (Points{0, 1, 2, 3, 4}));
  EXPECT_EQ(best_points(values, 4, true), (Points{0, 2, 3, 4}));
  EXPECT_EQ(best_points({}, 2, true), Points{});
}

}  // namespace
}  // namespace lockstep::sweep_halving_test
