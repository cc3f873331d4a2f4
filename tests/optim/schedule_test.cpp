// Schedules: exact values of pure functions.
#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::schedule_test {
namespace {

TEST(Schedule, WarmUpEndsAtTheFullRate) {
  for (auto& kind : builtin_schedules()) {
    const auto s = kind.make();
    EXPECT_DOUBLE_EQ(learning_rate(*s, 4, 2, 0, 100), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(*s, 4, 2, 1, 100), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(*s, 4, 2, 3, 100), 2.0);
    if (kind.name == "one_cycle") continue;  // rises by itself
    EXPECT_DOUBLE_EQ(learning_rate(*s, 4, 2, 4, 100), 2.0) << kind.name << " begins at its peak";
  }
}

TEST(Schedule, ConstantStays) {
  for (int64_t step : {0, 1, 99, 100, 100000}) EXPECT_EQ(learning_rate(ConstantSchedule(), 0, 0.3, step, 100), 0.3);
}

TEST(Schedule, LinearGoesStraightToItsEnd) {
  const LinearSchedule s({.final_ratio = 0.1});
  EXPECT_DOUBLE_EQ(learning_rate(s, 20, 1, 20, 120), 1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 20, 1, 70, 120), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(s, 20, 1, 120, 120), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 20, 1, 5000, 120), 0.1) << "and stays there";
  const LinearSchedule shorter({.steps = 70, .final_ratio = 0.1});
  EXPECT_DOUBLE_EQ(learning_rate(shorter, 20, 1, 45, 120), 0.55) << "schedule.steps, not train.steps";
}

TEST(Schedule, CosineFallsByHalfACosine) {
  const CosineSchedule s({.final_ratio = 0.2});
  EXPECT_DOUBLE_EQ(learning_rate(s, 0, 10, 0, 100), 10);
  EXPECT_DOUBLE_EQ(learning_rate(s, 0, 10, 50, 100), 6);
  EXPECT_DOUBLE_EQ(learning_rate(s, 0, 10, 25, 100), 10 * (0.2 + 0.8 * 0.5 * (1 + std::sqrt(0.5))));
  EXPECT_DOUBLE_EQ(learning_rate(s, 0, 10, 100, 100), 2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 0, 10, 300, 100), 2);
}

TEST(Schedule, StepMultipliesAfterEverySoManySteps) {
  const StepSchedule s({.every = 10, .factor = 0.5});
  EXPECT_DOUBLE_EQ(learning_rate(s, 5, 8, 5, 100), 8);
  EXPECT_DOUBLE_EQ(learning_rate(s, 5, 8, 14, 100), 8);
  EXPECT_DOUBLE_EQ(learning_rate(s, 5, 8, 15, 100), 4);
  EXPECT_DOUBLE_EQ(learning_rate(s, 5, 8, 34, 100), 2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 5, 8, 35, 100), 1);
}

TEST(Schedule, StableFallsInTheLastPart) {
  const StableSchedule s({.final_ratio = 0.1}, {.decay = 0.25});
  for (int64_t step : {20, 21, 94, 95}) EXPECT_DOUBLE_EQ(learning_rate(s, 20, 1, step, 120), 1) << step;
  EXPECT_NEAR(learning_rate(s, 20, 1, 105, 120), 1 - 0.9 * 0.4, 1e-12);
  EXPECT_NEAR(learning_rate(s, 20, 1, 120, 120), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate(s, 20, 1, 500, 120), 0.1, 1e-12) << "and stays there";
  EXPECT_DOUBLE_EQ(learning_rate(StableSchedule({}, {.decay = 0}), 0, 1, 119, 120), 1);
}

TEST(Schedule, InverseRootFallsWithTheRootOfTheStep) {
  const InverseRootSchedule s;
  EXPECT_DOUBLE_EQ(learning_rate(s, 100, 3, 100, 10), 3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 100, 3, 400, 10), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(s, 100, 3, 10000, 10), 0.3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 0, 3, 8, 10), 1) << "without warm-up as with one step of it";
}

TEST(Schedule, RestartsBeginAgainInPeriodsThatGrow) {
  const RestartSchedule even({.period = 10, .growth = 1, .final_ratio = 0.2});
  for (int64_t step : {5, 15, 25, 1005}) EXPECT_DOUBLE_EQ(learning_rate(even, 5, 1, step, 1), 1) << step;
  EXPECT_NEAR(learning_rate(even, 5, 1, 10, 1), 0.6, 1e-12);
  const RestartSchedule growing({.period = 10, .growth = 2, .final_ratio = 0});
  for (int64_t step : {0, 10, 30, 70}) EXPECT_DOUBLE_EQ(learning_rate(growing, 0, 1, step, 1), 1) << step;
  EXPECT_NEAR(learning_rate(growing, 0, 1, 20, 1), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(growing, 0, 1, 50, 1), 0.5, 1e-12);
}

TEST(Schedule, AGrowthThatRoundingTakesAwayIsSaid) {
  const auto [key, why] = RestartSchedule({.period = 4, .growth = 1.1}).problem();
  EXPECT_EQ(key, "growth");
  EXPECT_NE(why.find("no period would ever be longer; take 1.125 or more"), std::string::npos) << why;
  for (const auto& [period, growth] : {std::pair<int64_t, double>{4, 1}, {4, 1.125}, {10, 1.1}, {1, 1.5}})
    EXPECT_EQ(RestartSchedule({.period = period, .growth = growth}).problem().first, "") << period << " " << growth;
}

TEST(Schedule, OneCycleRisesAndFalls) {
  const OneCycleSchedule s({.final_ratio = 0.01}, {.rise = 0.25, .start_ratio = 0.1});
  EXPECT_NEAR(learning_rate(s, 0, 1, 0, 100), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate(s, 0, 1, 25, 100), 1, 1e-12);
  EXPECT_NEAR(learning_rate(s, 0, 1, 100, 100), 0.01, 1e-12);
  double last = 0;
  for (int64_t step = 0; step <= 100; ++step) {
    const double rate = learning_rate(s, 0, 1, step, 100);
    if (step <= 25) EXPECT_GT(rate, last) << step;
    else EXPECT_LT(rate, last) << step;
    last = rate;
  }
  EXPECT_NEAR(learning_rate(OneCycleSchedule({}, {.rise = 1}), 0, 1, 100, 100), 0, 1e-12);
}

TEST(Schedule, NeverRisesAfterWarmUpNorLeavesItsBounds) {
  const LinearSchedule linear({.final_ratio = 0.05});
  const CosineSchedule cosine({.final_ratio = 0.05});
  const StepSchedule step_by_step({.every = 13, .factor = 0.7});
  const ConstantSchedule constant;
  const StableSchedule stable({.final_ratio = 0.05}, {});
  const InverseRootSchedule inverse_root;
  for (const Schedule* s :
       std::initializer_list<const Schedule*>{&constant, &linear, &cosine, &step_by_step, &stable, &inverse_root})
    for (int64_t warmup : {0, 7, 100, 200}) {
      double last = 1;
      for (int64_t step = warmup; step < 400; ++step) {
        const double lr = learning_rate(*s, warmup, 1, step, 100);
        ASSERT_LE(lr, last);
        ASSERT_GT(lr, 0);
        last = lr;
      }
    }
}

TEST(Schedule, HasTheOptionsOfItsKindAlone) {
  auto keys = [&](const char* kind) {
    std::vector<std::string> out;
    const auto s = make_choice(builtin_schedules(), kind);
    for (const Field& f : s->options()) out.push_back(f.key);
    return out;
  };
  EXPECT_TRUE(keys("constant").empty());
  EXPECT_EQ(keys("cosine"), (std::vector<std::string>{"steps", "final_ratio"}));
  EXPECT_EQ(keys("step"), (std::vector<std::string>{"every", "factor"}));
}

}  // namespace
}  // namespace lockstep::schedule_test
