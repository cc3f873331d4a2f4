#include "launch/checkpoints/planned_saves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace lockstep::planned_saves_test {
namespace {

// Saves one after the other, as a run does it, and counts. Losses that only grow make the best checkpoints other ones
// than the newest. `any`: saves after every step; each evaluation finds a new best.
int64_t counted(const PlannedSaves& p, const std::vector<int64_t>& there, const Retention& r) {
  if (p.last == 0 && p.done == 0) return 1;  // the initial parameters
  std::set<int64_t> disk(there.begin(), there.end());
  size_t most = disk.size();
  for (int64_t step = p.done + 1; step <= p.last; ++step) {
    const auto is_multiple = [&](int64_t of) { return of > 0 && step % of == 0; };
    if (!p.any && step != p.last && !is_multiple(p.every) && !is_multiple(p.best_every)) continue;
    disk.insert(step);
    most = std::max(most, disk.size());
    if (r.keep_last <= 0) continue;
    int64_t newer = 0;
    const auto oldest = std::next(disk.begin(), std::min(r.keep_best, static_cast<int64_t>(disk.size())));
    const std::set<int64_t> best(disk.begin(), oldest);
    for (auto it = disk.end(); it != disk.begin();) {
      --it;
      const bool stays = ++newer <= r.keep_last || best.contains(*it) || (r.keep_every > 0 && *it % r.keep_every == 0);
      if (!stays) it = disk.erase(it);
    }
  }
  return static_cast<int64_t>(most - there.size());
}

TEST(PlannedSaves, AreCountedAsARunSaves) {
  for (int64_t every : {0, 1, 2, 3, 5, 7})
    for (int64_t keep_last : {0, 1, 2, 3, 10})
      for (int64_t keep_every : {0, 1, 2, 6, 14})
        for (int64_t last : {0, 1, 2, 12, 13, 60, 61}) {
          const Retention r{keep_last, keep_every};
          EXPECT_EQ(most_added_checkpoints({0, last, every}, {}, r), counted({0, last, every}, {}, r))
              << every << " " << keep_last << " " << keep_every << " " << last;
        }
}

TEST(PlannedSaves, OfAResumedRunCountWhatIsThere) {
  for (int64_t every : {0, 2, 3})
    for (int64_t keep_last : {0, 1, 3})
      for (int64_t keep_every : {0, 4})
        for (int64_t last : {12, 13, 40})
          for (const std::vector<int64_t>& there :
               {std::vector<int64_t>{12}, {4, 8, 12}, {4, 10, 11, 12}, {1, 2, 3, 5, 6, 7, 9, 12}}) {
            const Retention r{keep_last, keep_every};
            EXPECT_EQ(most_added_checkpoints({12, last, every}, there, r), counted({12, last, every}, there, r))
                << every << " " << keep_last << " " << keep_every << " " << last << " " << there.size();
          }
}

// What depends on losses and on time is bounded: never too low, and too high by no more than what may be kept for it.
TEST(PlannedSaves, OfUnknownStepsAndLossesAreBounded) {
  const std::vector<std::vector<int64_t>> found{{}, {12}, {1, 2, 3, 5, 6, 7, 9, 12}};
  for (int64_t every : {0, 1, 3, 5})
    for (int64_t keep_last : {1, 2, 5})
      for (int64_t keep_best : {0, 1, 3, 100})
        for (int64_t last : {13, 14, 40})
          for (const bool any : {false, true})
            for (const auto& there : found) {
              const Retention r{keep_last, 0, keep_best};
              const PlannedSaves p{there.empty() ? 0 : 12, last, every, any};
              const int64_t planned = most_added_checkpoints(p, there, r);
              EXPECT_GE(planned, counted(p, there, r))
                  << every << keep_last << keep_best << last << any << there.size();
              EXPECT_LE(planned, keep_last + keep_best + 1);
              EXPECT_LE(planned, last - p.done);
            }
}

TEST(PlannedSaves, OfNewBestsAreBounded) {
  for (int64_t every : {0, 3, 5})
    for (int64_t best_every : {1, 4, 6, 50})
      for (int64_t keep_last : {1, 2, 5})
        for (int64_t keep_every : {0, 1, 6})
          for (int64_t keep_best : {1, 3})
            for (int64_t last : {13, 14, 40, 100}) {
              const Retention r{keep_last, keep_every, keep_best};
              const PlannedSaves p{0, last, every, false, best_every};
              const int64_t planned = most_added_checkpoints(p, {}, r), saves = last / best_every + 1;
              EXPECT_GE(planned, counted(p, {}, r)) << every << best_every << keep_last << keep_every << last;
              EXPECT_LE(planned, last);
              if (every == 0 && keep_every == 0) {
                EXPECT_LE(planned, saves) << best_every << last;
              }
            }
}

TEST(PlannedSaves, OfLongRunsAreCountedAtOnce) {
  constexpr int64_t kLong = int64_t{1} << 62;
  EXPECT_EQ(most_added_checkpoints({0, kLong, 1}, {}, {0, 0}), kLong);
  EXPECT_EQ(most_added_checkpoints({0, kLong, 1}, {}, {2, 0}), 3);
  EXPECT_EQ(most_added_checkpoints({0, kLong, 1}, {}, {kLong, 0}), kLong);
  EXPECT_EQ(most_added_checkpoints({0, kLong, 2}, {}, {1, kLong - 1}), 2);  // the common multiple is out of reach
}

}  // namespace
}  // namespace lockstep::planned_saves_test
