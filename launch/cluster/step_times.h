// StepTimes: what makes steps long beside computing: a rank that the others wait for, or exchanges between machines, of
// which it names the slowest link.
// Fed by launch/cluster/attempt.cpp with what the agents report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/cluster/diagnosis.h"

namespace lockstep {

class StepTimes {
 public:
  // Takes each rank's last step; `now` as RankView::heard. Returns a line at most once a minute: a rank is named where
  // it computes much longer than most, in many steps one after the other, and costs a tenth of a step or more;
  // exchanges where every rank of several machines waits for them more than it computes.
  std::optional<std::string> update(const std::vector<RankView>& ranks, double now);

 private:
  struct Rank {
    int64_t step = 0, steps = 0;      // the last one, and how many were seen
    double step_ms = 0, busy_ms = 0;  // smoothed; busy: not waiting for other ranks
    std::vector<double> slow_mb_s;    // by rank: how fast what came from it was, where it was the slowest; smoothed
  };
  std::optional<std::string> on_straggler(const std::vector<RankView>& ranks);
  std::string slowest_link(const std::vector<RankView>& ranks) const;
  std::optional<std::string> on_exchanges(const std::vector<RankView>& ranks);

  std::vector<Rank> ranks_;
  int slowest_ = -1;            // the rank that stood out in the last steps
  int in_row_ = 0, waits_ = 0;  // how often it did; how often exchanges took most of a step
  double said_ = -1e9;
};

}  // namespace lockstep
