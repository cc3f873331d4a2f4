#include "launch/records/goodput.h"

#include <gtest/gtest.h>

#include <fstream>

#include "launch/records/run_dir.h"
#include "tests/support/files.h"

namespace lockstep::goodput_test {
namespace {

using test::TemporaryFolder;

// Two attempts: from 1000 on, whose steps 3 and 4 were done once more by the one from 1020 on.
TEST(Goodput, IsOfAllAttempts) {
  const TemporaryFolder dir;
  const RunPaths paths{dir / "."};
  std::ofstream(paths.attempts()) << "{\"begun\":1000,\"step\":0}\n{\"begun\":1020,\"step\":2}\n";
  std::ofstream(paths.metrics()) << R"({"step":1,"step_ms":2000,"data_ms":500,"time":1006})"
                                 << "\n"
                                 << R"({"step":2,"step_ms":2000,"data_ms":0,"time":1008,"checkpoint_stall_ms":250})"
                                 << "\n"
                                 << R"({"step":3,"step_ms":2000,"time":1025,"validation_s":1.5})"
                                 << "\n"
                                 << R"({"step":4,"step_ms":2000,"time":1029})"
                                 << "\nno line\n";
  std::ofstream(dir / "metrics.earlier.jsonl") << R"({"step":3,"step_ms":2000,"time":1010})"
                                               << "\n"
                                               << R"({"step":4,"step_ms":3000,"time":1013})"
                                               << "\n";
  const Goodput g = read_goodput(dir / ".");
  EXPECT_EQ(g.attempts, 2);
  EXPECT_EQ(g.wall, 29);
  EXPECT_EQ(g.steps, 7.5);
  EXPECT_EQ(g.data, 0.5);
  EXPECT_EQ(g.start, 4 + 1.5) << "the time of a line is that after its validation";
  EXPECT_EQ(g.repeated, 5);
  EXPECT_EQ(g.down, 7);
  EXPECT_EQ(g.validation, 1.5);
  EXPECT_EQ(g.saving, 0.25);
  EXPECT_EQ(g.other(), 1.75);
  EXPECT_NEAR(g.share(), 7.5 / 29, 1e-12);
  EXPECT_EQ(to_text(g),
            "goodput 26%: of 29 s in 2 attempts, 24% between attempts, 19% start, 17% repeated steps, 6% other, "
            "5% validation, 2% waits for data, 1% saving");
  EXPECT_EQ(read_goodput(dir / ".", 1040).wall, 40) << "of a run that goes on";
}

TEST(Goodput, OfAttemptsWithoutAStep) {
  const TemporaryFolder dir;
  EXPECT_EQ(read_goodput(dir / ".").wall, 0);
  begin_attempt(dir / ".", 0, 2);
  const double begun = read_goodput(dir / ".").first;
  EXPECT_NEAR(begun, seconds_since_1970(), 60);
  std::ofstream(RunPaths{dir / "."}.attempts(), std::ios::app) << "{\"begun\":" << std::fixed << begun + 10 << "}\n";
  const Goodput g = read_goodput(dir / ".", begun + 15);
  EXPECT_EQ(g.attempts, 2);
  EXPECT_NEAR(g.start, 15, 0.01) << "each until the next one, or now";
  EXPECT_NEAR(g.down, 0, 0.01);
  EXPECT_EQ(g.share(), 0);
}

// Runs of versions that kept no attempts.
TEST(Goodput, BeginsWithTheFirstStepWhereNoAttemptIsNoted) {
  const TemporaryFolder dir;
  std::ofstream(RunPaths{dir / "."}.metrics()) << R"({"step":1,"step_ms":2000,"time":1006})"
                                               << "\n"
                                               << R"({"step":2,"step_ms":1000,"time":1008})"
                                               << "\n";
  const Goodput g = read_goodput(dir / ".");
  EXPECT_EQ(g.wall, 4);
  EXPECT_EQ(g.share(), 0.75);
}

}  // namespace
}  // namespace lockstep::goodput_test
