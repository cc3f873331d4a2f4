// LossScale: the factor by which fp16 training multiplies its loss, so that small gradients do not underflow. A power
// of two that halves after a step whose gradients overflowed and doubles after kGrowAfter steps without overflow
// (Micikevicius et al. 2018, "Mixed precision training"). A plain value, equal on all ranks because the results of all
// steps are.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep {

class LossScale {
 public:
  static constexpr int64_t kGrowAfter = 2000;
  static constexpr double kFirst = 65536, kLeast = 1, kMost = 16777216;

  LossScale() = default;  // stays 1
  static LossScale dynamic() { return LossScale(true); }

  double value() const { return value_; }
  int64_t good_steps() const { return good_steps_; }
  void update(bool finite) {
    if (!dynamic_) return;
    good_steps_ = finite ? good_steps_ + 1 : 0;
    if (!finite) value_ = std::max(kLeast, value_ / 2);
    if (good_steps_ == kGrowAfter) value_ = std::min(kMost, value_ * 2), good_steps_ = 0;
  }
  // Sets the state that a checkpoint of fp16 training holds.
  void restore(double value, int64_t good_steps) {
    if (!dynamic_) return;
    value_ = value, good_steps_ = good_steps;
  }

 private:
  explicit LossScale(bool dynamic) : dynamic_(dynamic), value_(dynamic ? kFirst : 1) {}
  bool dynamic_ = false;
  double value_ = 1;
  int64_t good_steps_ = 0;
};

}  // namespace lockstep
