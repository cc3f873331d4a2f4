// Jumps: finds values of a metric that are far above those before them; the log names them as they come, a report
// afterwards. A plain value.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

namespace lockstep {

// How many times the usual value counts as a jump, and what to do about one.
struct JumpRule {
  double times;
  const char* advice;
};
inline constexpr JumpRule kLossJumps{2, "a lower optim.lr, a longer schedule.warmup or optim.clip_norm avoids it"};
inline constexpr JumpRule kNormJumps{
    20, "optim.clip_norm bounds what such a step does; train.watch says in which layer it begins"};

class Jumps {
 public:
  // `enough`: values that must have come before one that is judged.
  Jumps(double times, size_t enough) : times_(times), enough_(enough) {}
  // Takes the next value. Returns the median of the up to 32 values before it if that is positive, the value is at
  // least `times` as large, and at least a twentieth of the largest such median so far: a loss that has become tiny
  // moves by factors that mean nothing. Values that are not finite are passed over.
  std::optional<double> take(double value);

 private:
  const double times_;
  const size_t enough_;
  double largest_ = 0;  // of the medians so far
  std::deque<double> before_;
};

}  // namespace lockstep
