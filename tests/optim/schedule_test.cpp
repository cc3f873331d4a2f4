// Schedules: exact values of pure functions.
#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

using Kind = ScheduleOptions::Kind;

TEST(Schedule, WarmUpEndsAtTheFullRate) {
  for (Kind kind : {Kind::kConstant, Kind::kLinear, Kind::kCosine, Kind::kStep}) {
    const ScheduleOptions o{.kind = kind, .warmup = 4};
    EXPECT_DOUBLE_EQ(learning_rate(o, 2, 0, 100), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(o, 2, 1, 100), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(o, 2, 3, 100), 2.0);
    EXPECT_DOUBLE_EQ(learning_rate(o, 2, 4, 100), 2.0) << "the schedule begins at its peak";
  }
}

TEST(Schedule, ConstantStays) {
  for (int64_t step : {0, 1, 99, 100, 100000}) EXPECT_EQ(learning_rate({}, 0.3, step, 100), 0.3);
}

TEST(Schedule, LinearGoesStraightToItsEnd) {
  const ScheduleOptions o{.kind = Kind::kLinear, .warmup = 20, .final_ratio = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(o, 1, 20, 120), 1);
  EXPECT_DOUBLE_EQ(learning_rate(o, 1, 70, 120), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(o, 1, 120, 120), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(o, 1, 5000, 120), 0.1) << "and stays there";
  ScheduleOptions shorter = o;
  shorter.steps = 70;
  EXPECT_DOUBLE_EQ(learning_rate(shorter, 1, 45, 120), 0.55) << "schedule.steps, not train.steps";
}

TEST(Schedule, CosineFallsByHalfACosine) {
  const ScheduleOptions o{.kind = Kind::kCosine, .final_ratio = 0.2};
  EXPECT_DOUBLE_EQ(learning_rate(o, 10, 0, 100), 10);
  EXPECT_DOUBLE_EQ(learning_rate(o, 10, 50, 100), 6);
  EXPECT_DOUBLE_EQ(learning_rate(o, 10, 25, 100), 10 * (0.2 + 0.8 * 0.5 * (1 + std::sqrt(0.5))));
  EXPECT_DOUBLE_EQ(learning_rate(o, 10, 100, 100), 2);
  EXPECT_DOUBLE_EQ(learning_rate(o, 10, 300, 100), 2);
}

TEST(Schedule, StepMultipliesAfterEverySoManySteps) {
  const ScheduleOptions o{.kind = Kind::kStep, .warmup = 5, .every = 10, .factor = 0.5};
  EXPECT_DOUBLE_EQ(learning_rate(o, 8, 5, 100), 8);
  EXPECT_DOUBLE_EQ(learning_rate(o, 8, 14, 100), 8);
  EXPECT_DOUBLE_EQ(learning_rate(o, 8, 15, 100), 4);
  EXPECT_DOUBLE_EQ(learning_rate(o, 8, 34, 100), 2);
  EXPECT_DOUBLE_EQ(learning_rate(o, 8, 35, 100), 1);
}

TEST(Schedule, NeverRisesAfterWarmUpNorLeavesItsBounds) {
  for (Kind kind : {Kind::kConstant, Kind::kLinear, Kind::kCosine, Kind::kStep})
    for (int64_t warmup : {0, 7, 100, 200}) {
      const ScheduleOptions o{.kind = kind, .warmup = warmup, .final_ratio = 0.05, .every = 13, .factor = 0.7};
      double last = 1;
      for (int64_t step = warmup; step < 400; ++step) {
        const double lr = learning_rate(o, 1, step, 100);
        ASSERT_LE(lr, last);
        ASSERT_GT(lr, 0);
        last = lr;
      }
    }
}

TEST(Schedule, HasTheFieldsOfItsKindAlone) {
  ScheduleOptions o;
  auto keys = [&](const char* kind) {
    std::vector<std::string> out;
    for (const Field& f : fields_of_kind(o, kind)) out.push_back(f.key);
    return out;
  };
  EXPECT_TRUE(keys("constant").empty());
  EXPECT_EQ(keys("cosine"), (std::vector<std::string>{"steps", "final_ratio"}));
  EXPECT_EQ(keys("step"), (std::vector<std::string>{"every", "factor"}));
}

}  // namespace
}  // namespace lockstep
