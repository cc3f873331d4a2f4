// The average of parameters against its definition in fp64.
#include "optim/weight_average.h"

#include <gtest/gtest.h>

#include "tests/optim/slots.h"
#include "tests/support/files.h"

namespace lockstep::weight_average_test {
namespace {

using testing::numbers;
using testing::slot;

void set_master(const Slot& s, uint64_t seed) {
  const auto v = numbers(s.master.numel(), seed);
  std::copy(v.begin(), v.end(), const_cast<Tensor&>(s.master).mutable_values<float>());
}

void update(WeightAverage& average, const std::vector<Slot>& slots, bool skip = false) {
  average.set_lr(0);
  average.step(slots, {.grad_scale = 1, .finite = !skip});
}

TEST(WeightAverage, FollowsItsDefinition) {
  const std::vector<Slot> slots{slot("w", 1003, true), slot("bias", 67, false)};
  WeightAverage average(slots, 0.9);
  EXPECT_EQ(average.state(slots)[0].name, "ema/w");
  EXPECT_EQ(average.state(slots)[0].data.to_vector(), slots[0].master.to_vector()) << "before any update";
  std::vector<std::vector<double>> expected(slots.size());
  for (uint64_t step = 0; step < 20; ++step)
    for (size_t k = 0; k < slots.size(); ++k) {
      set_master(slots[k], 10 * step + k);
      if (k + 1 < slots.size()) continue;
      update(average, slots);
      for (size_t j = 0; j < slots.size(); ++j) {
        const auto p = slots[j].master.to_vector(), got = average.state(slots)[j].data.to_vector();
        if (step == 0) expected[j] = p;
        for (size_t i = 0; i < p.size() && step > 0; ++i) expected[j][i] = 0.9 * expected[j][i] + 0.1 * p[i];
        for (size_t i = 0; i < p.size(); ++i) ASSERT_NEAR(got[i], expected[j][i], 1e-6) << step << ": " << i;
      }
    }
  EXPECT_EQ(average.updates(), 20);
}

TEST(WeightAverage, OfASkippedStepStaysAsItWas) {
  const std::vector<Slot> slots{slot("w", 130, true)};
  WeightAverage average(slots, 0.9);
  update(average, slots);
  const auto before = average.state(slots)[0].data.to_vector();
  set_master(slots[0], 5);
  update(average, slots, true);
  EXPECT_EQ(average.state(slots)[0].data.to_vector(), before);
  EXPECT_EQ(average.updates(), 1);
}

TEST(WeightAverage, ChangesPlacesWithTheParametersAndBack) {
  const std::vector<Slot> slots{slot("w", (1 << 20) + 77, true)};  // longer than a piece
  WeightAverage average(slots, 0.5);
  update(average, slots);
  set_master(slots[0], 3);
  update(average, slots);
  const auto parameters = slots[0].master.to_vector(), averages = average.state(slots)[0].data.to_vector();
  average.swap(slots);
  EXPECT_EQ(slots[0].master.to_vector(), averages);
  EXPECT_EQ(average.state(slots)[0].data.to_vector(), parameters);
  average.swap(slots);
  EXPECT_EQ(slots[0].master.to_vector(), parameters);
  average.restart(slots);
  EXPECT_EQ(average.state(slots)[0].data.to_vector(), parameters);
  EXPECT_EQ(average.updates(), 0);
}

TEST(WeightAverage, OfACheckpointWithoutAnyIsRefused) {
  Checkpoint c;
  c.dir = "runs/a/checkpoints/step-00000001";
  c.slices.push_back({.name = "parameters/w", .region = Shape{4}, .count = 4, .hash = {}});
  const std::vector<StateEntry> entries{{"parameters/w", Shape{4}, 0, Tensor::zeros({4})}};
  test::expect_error(ExitCode::kConfig, {"step-00000001", "trained without optim.ema"},
                     [&] { averages_of(c, entries); });
  c.slices.push_back({.name = "ema/w", .region = Shape{4}, .count = 4, .hash = {}});
  const auto found = averages_of(c, entries);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "ema/w");
}

}  // namespace
}  // namespace lockstep::weight_average_test
