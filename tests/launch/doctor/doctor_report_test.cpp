#include "launch/doctor/doctor_report.h"

#include <gtest/gtest.h>

#include "tests/launch/scratch.h"

namespace lockstep::doctor_report_test {
namespace {

// Two ranks on each of four machines, all alike.
Health healthy() {
  Health h;
  for (int i = 0; i < 8; ++i) {
    RankHealth r;
    r.host = str("n", i / 2);
    r.machine = str("id", i / 2);
    r.local_rank = i % 2;
    r.cpu = "A CPU";
    r.cores = "0-7";
    r.core_count = 8;
    r.version = "1.0";
    r.isa = "avx2";
    r.mpi = "Open MPI v4.1.4";
    r.gflops = 100 + i;
    if (r.local_rank == 0) r.write_mb_s = 900 + i, r.read_mb_s = 1900 + i;
    h.ranks.push_back(r);
  }
  for (int a = 0; a < 8; ++a)
    for (int b = a + 1; b < 8; ++b) {
      const bool local = a / 2 == b / 2;
      h.links.push_back({a, b, local ? 2.0 : 30.0, local ? 8000.0 : 1100.0});
    }
  h.small_reduce_us = 60;
  h.large_reduce_mb_s = 900;
  return h;
}
LinkHealth& link_of(Health& h, int a, int b) {
  for (LinkHealth& l : h.links)
    if (l.a == a && l.b == b) return l;
  throw std::runtime_error("no such link");
}
void expect_only(const Health& h, const std::string& part) {
  const auto found = findings(h);
  ASSERT_EQ(found.size(), 1u) << part;
  EXPECT_TRUE(contains(found[0], part)) << found[0];
  EXPECT_TRUE(contains(tables(h), "differs: " + found[0]));
}

TEST(DoctorReport, RanksThatAreAlikeGiveNoFinding) {
  EXPECT_TRUE(findings(healthy()).empty());
  EXPECT_TRUE(contains(tables(healthy()), "nothing stands out"));
}

TEST(DoctorReport, NamesTheMachineThatSeesAnotherFolder) {
  Health h = healthy();
  for (size_t r : {2, 3}) h.ranks[r].not_shared = "n1 does not see the folder /runs of n0";
  EXPECT_EQ(parse_rank_health(to_line(h.ranks[2])).not_shared, h.ranks[2].not_shared);
  expect_only(h, "n1 does not see the folder /runs of n0");
}

TEST(DoctorReport, NamesTheMachineThatIsUnlikeMost) {
  Health h = healthy();
  for (int r : {4, 5}) h.ranks[static_cast<size_t>(r)].cpu = "B CPU";
  expect_only(h, "n2: CPU B CPU, most have A CPU");
  h = healthy();
  for (int r : {0, 1}) h.ranks[static_cast<size_t>(r)].version = "0.9";  // rank 0 is not the measure
  expect_only(h, "n0: lockstep 0.9, most have 1.0");
}

TEST(DoctorReport, NamesTheSlowRankLinkDiskAndClock) {
  Health h = healthy();
  h.ranks[3].gflops = 50;
  expect_only(h, "rank 3 on n1: computes 50.0 GF/s");
  h = healthy();
  h.ranks[6].write_mb_s = 100;
  expect_only(h, "n3: writes 100 MB/s");
  h = healthy();
  h.ranks[6].read_mb_s = 100;
  expect_only(h, "n3: reads 100 MB/s");
  h = healthy();
  h.ranks[5].clock_s = -2;
  expect_only(h, "rank 5 on n2: its clock is 2.000 s behind");
  h.ranks[5].clock_error_s = 3;  // a slow link does not make a clock wrong
  EXPECT_TRUE(findings(h).empty());
  h = healthy();
  h.ranks[7].core_count = 4;
  expect_only(h, "rank 7 on n3: may use 4 cores, rank 0 8");
}

TEST(DoctorReport, ComparesLinksWithThoseOfTheirKind) {
  Health h = healthy();
  link_of(h, 1, 6).mb_s = 100;
  expect_only(h, "between rank 1 on n0 and rank 6 on n3: 100 MB/s, the best is 1100");
  h = healthy();
  link_of(h, 2, 3).mb_s = 1100;  // within a machine
  expect_only(h, "between rank 2 on n1 and rank 3 on n1: 1100 MB/s, the median is 8000");
  h = healthy();
  link_of(h, 0, 7).latency_us = 400;
  expect_only(h, "400.0 us");
}

TEST(DoctorReport, ComparesLinksBetweenMachinesWithTheBest) {
  Health h = healthy();
  h.ranks.resize(3);
  for (size_t i = 0; i < 3; ++i) h.ranks[i].machine = h.ranks[i].host = str("n", i), h.ranks[i].local_rank = 0;
  for (RankHealth& r : h.ranks) r.write_mb_s = 900, r.read_mb_s = 1900;
  h.links = {{0, 1, 30, 20}, {0, 2, 30, 24}, {1, 2, 30, 119}};
  const auto found = findings(h);
  ASSERT_EQ(found.size(), 2u);  // the median, 24 MB/s, is that of a slow one
  EXPECT_EQ(found[0], "between rank 0 on n0 and rank 1 on n1: 20 MB/s, the best is 119");
  EXPECT_EQ(found[1], "between rank 0 on n0 and rank 2 on n2: 24 MB/s, the best is 119");
}

TEST(DoctorReport, ARankIsReadBack) {
  RankHealth r = healthy().ranks[3];
  r.clock_s = -0.25;
  const RankHealth same = parse_rank_health(to_line(r));
  EXPECT_EQ(to_line(same), to_line(r));
  EXPECT_EQ(same.clock_s, -0.25);
  EXPECT_EQ(same.core_count, 8);
}

}  // namespace
}  // namespace lockstep::doctor_report_test
