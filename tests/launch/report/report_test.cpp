// What a report makes of many steps: thinned curves that keep their extremes, rank times, findings.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "core/base/text_table.h"
#include "core/io/json.h"
#include "launch/report/curve.h"
#include "launch/report/findings.h"

namespace lockstep::report_test {
namespace {

TEST(Curve, KeepsExtremesOfAMillionSteps) {
  Curve curve(500);
  for (int64_t step = 1; step <= 1'000'000; ++step)
    curve.add(step, step == 123'457 ? 99.0 : step == 777'777 ? -99.0 : 1 + 1e-6 * static_cast<double>(step % 10));
  const auto points = curve.points();
  EXPECT_LE(points.size(), 1001u);
  EXPECT_GE(points.size(), 500u);
  int64_t high = 0, low = 0, before = 0;
  for (const auto& p : points) {
    EXPECT_GT(p.step, before);
    before = p.step;
    if (p.value == 99) high = p.step;
    if (p.value == -99) low = p.step;
  }
  EXPECT_EQ(high, 123'457);
  EXPECT_EQ(low, 777'777);
  EXPECT_EQ(points.back().step, 1'000'000);
  EXPECT_EQ(curve.count(), 1'000'000);
}

TEST(Curve, HasFewValuesAsTheyAre) {
  Curve curve(4);
  curve.add(3, 0.5);
  curve.add(7, std::numeric_limits<double>::quiet_NaN());
  curve.add(8, 123456.7);
  EXPECT_EQ(curve.json(), R"({"n":3,"m":1.2381e+05,"s":[3,4,1],"v":[0.5,null,1.2346e+05]})");
  EXPECT_EQ(Curve(2).json(), R"({"n":0,"m":null,"s":[],"v":[]})");
}

TEST(Curve, HasTheMedianOfAllValues) {
  Curve curve(50);
  for (int64_t step = 1; step <= 100'000; ++step) curve.add(step, step % 50 == 0 ? 400 : 100);
  EXPECT_NEAR(curve.median(), 100, 0.6);
  Curve negative(50);
  for (int64_t step = 0; step < 101; ++step) negative.add(step, static_cast<double>(step - 90));
  EXPECT_NEAR(negative.median(), -40, 0.4);
}

// A step whose value is not finite stays visible however many steps follow.
TEST(Curve, KeepsValuesThatAreNotFinite) {
  Curve curve(8);
  for (int64_t step = 1; step <= 1000; ++step) curve.add(step, step == 77 ? NAN : 1.0);
  bool found = false;
  for (const auto& p : curve.points()) found = found || (p.step == 77 && std::isnan(p.value));
  EXPECT_TRUE(found);
}

TEST(RankTimes, NamesTheRankThatIsSlower) {
  RankTimes even(16), slow(16), two(16);
  for (int64_t step = 1; step <= 1000; ++step) {
    even.add(step, {10, 10.5, 9.8, 10.1});
    slow.add(step, {10, 10.5, 20 + static_cast<double>(step % 3), 10.1});
    two.add(step, {10, 15});
  }
  EXPECT_FALSE(even.straggler());
  ASSERT_TRUE(slow.straggler());
  EXPECT_EQ(slow.straggler()->rank, 2);
  EXPECT_NEAR(slow.straggler()->times, 2.1, 0.05);
  ASSERT_TRUE(two.straggler());
  EXPECT_EQ(two.straggler()->rank, 1);
  EXPECT_NEAR(two.straggler()->times, 1.5, 1e-9);
  const auto json = parse_json_object(slow.json());
  ASSERT_TRUE(json);
  const auto columns = parse_json_array(std::get<JsonText>(*find_member(*json, "mean")).text);
  EXPECT_LE(columns->size(), 16u);
  // Another number of ranks after a resume: columns of their own.
  slow.add(1001, {10, 10});
  EXPECT_FALSE(slow.straggler());
}

std::vector<std::string> found(const std::string& name, double (*value)(int64_t step), int64_t steps = 400) {
  Curve curve(200);
  for (int64_t step = 1; step <= steps; ++step) curve.add(step, value(step));
  return findings({{name, &curve}});
}

TEST(Findings, NamesWhatIsPlanted) {
  const auto leak = found("memory_mb", [](int64_t step) { return 100 + 0.25 * static_cast<double>(step); });
  ASSERT_EQ(leak.size(), 1u);
  EXPECT_NE(leak[0].find("grows all the time, from 112"), std::string::npos) << leak[0];
  EXPECT_NE(leak[0].find("250 kB a step"), std::string::npos) << leak[0];
  const auto gradient = found("grad_norm", [](int64_t step) { return step == 250 ? 4000.0 : 1.5; });
  ASSERT_EQ(gradient.size(), 1u);
  EXPECT_NE(gradient[0].find("jumps to 4.00k after step 250, where it was 1.50"), std::string::npos) << gradient[0];
  const auto loss = found("loss", [](int64_t step) { return step > 300 && step < 310 ? 9.0 : 2.0; });
  ASSERT_EQ(loss.size(), 1u);
  const auto infinite = found("loss", [](int64_t step) { return step == 9 ? INFINITY : 2.0; });
  ASSERT_EQ(infinite.size(), 1u);
  EXPECT_EQ(infinite[0], "loss is not finite after step 9");
  const auto dead = found("watch/blocks.1/zeros", [](int64_t step) { return step > 100 ? 1.0 : 0.5; });
  ASSERT_EQ(dead.size(), 1u);
  EXPECT_NE(dead[0].find("nothing but zeros after step "), std::string::npos) << dead[0];
}

TEST(Findings, SaysNothingOfWhatIsUsual) {
  EXPECT_TRUE(
      found("memory_mb", [](int64_t step) { return step < 5 ? 50.0 : 100.0 + static_cast<double>(step % 7); }).empty());
  EXPECT_TRUE(found("loss", [](int64_t step) {
                return 4 / std::sqrt(static_cast<double>(step)) + 0.1 * static_cast<double>(step % 3);
              }).empty());
  EXPECT_TRUE(found("grad_norm", [](int64_t step) { return 1 + static_cast<double>(step % 5); }).empty());
  EXPECT_TRUE(found(
                  "loss", [](int64_t) { return 1.0; }, 3)
                  .empty());
}

TEST(Rounded, KeepsThreeSignificantDigits) {
  EXPECT_EQ(rounded(12.34567), 12.346);
  EXPECT_EQ(rounded(0.00123456), 0.00123);
  EXPECT_EQ(rounded(0), 0);
  EXPECT_EQ(rounded(-4.5678e-7), -4.57e-7);
  EXPECT_EQ(rounded(123456.7), 123456.7);
}

}  // namespace
}  // namespace lockstep::report_test
