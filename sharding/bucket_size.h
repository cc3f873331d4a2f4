// What size of buckets would suit the communication that a run measured. A value that takes in the transfers of steps;
// owned by whoever reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sharding/transfer_log.h"

namespace lockstep {

class BucketSizeAdvice {
 public:
  // A step's transfers, in the order in which they started, and how long the step took.
  void add(const std::vector<Transfer>& transfers, double step_s);
  // Seconds that a rank waited for each bucket, a step; by "gather NAME" and "reduce NAME".
  std::map<std::string, double> waits() const;
  // Part of the time spent waiting for transfers.
  double waiting() const { return step_s_ > 0 ? waited_s_ / step_s_ : 0; }
  // The size of buckets (MB) that would make a step's reductions wait least, where the rank waits for more than a
  // twentieth of its time and that size is not within a factor of 2 of `bucket_mb`. A reduction costs a + bytes / b,
  // fitted to those that the rank saw end; buckets of s bytes of a model of T cost T / s calls, and the last one's
  // s / b, which nothing hides: the least is at s = sqrt(T a b).
  std::optional<double> better(double bucket_mb) const;

 private:
  struct Seen {
    double waited_s = 0, bytes = 0, took_s = 0;
    int64_t count = 0, ended_in_sight = 0;
  };
  std::map<std::string, Seen> buckets_;
  double waited_s_ = 0, step_s_ = 0;
  int64_t steps_ = 0;
};

}  // namespace lockstep
