// What counts as a jump of a metric.
#include "launch/records/jumps.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/text_table.h"

namespace lockstep::jumps_test {
namespace {

TEST(Jumps, AreValuesFarAboveTheUsualOne) {
  Jumps jumps(2, 4);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(jumps.take(1)) << "too few before it";
  EXPECT_FALSE(jumps.take(1.9));
  EXPECT_FALSE(jumps.take(NAN));
  EXPECT_EQ(jumps.take(5), 1);
}

TEST(Jumps, OfATinyLossAreNone) {
  Jumps jumps(2, 4);
  for (int i = 0; i < 40; ++i) EXPECT_FALSE(jumps.take(1.1));
  for (int i = 0; i < 40; ++i) EXPECT_FALSE(jumps.take(0.0004));
  EXPECT_FALSE(jumps.take(0.004)) << "ten times the usual one, of a loss that began at 1.1";
  EXPECT_EQ(jumps.take(0.06), 0.0004);
}

TEST(ShortNumber, ShowsTwoDigitsOfSmallNumbers) {
  EXPECT_EQ(short_number(0.5), "0.50");
  EXPECT_EQ(short_number(0.05), "0.05");
  EXPECT_EQ(short_number(0.01234), "0.012");
  EXPECT_EQ(short_number(0.0000031), "3.1e-06");
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(12345), "12.3k");
}

}  // namespace
}  // namespace lockstep::jumps_test
