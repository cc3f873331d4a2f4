// Schedules: the learning rate as a pure function of the step.
// Plain functions and values.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/field.h"

namespace lockstep {

struct ScheduleOptions {
  enum class Kind { kConstant, kLinear, kCosine, kStep };
  Kind kind = Kind::kConstant;
  int64_t warmup = 0;      // steps from 0 to the full rate
  int64_t steps = 0;       // at which linear and cosine end; 0: train.steps
  double final_ratio = 0;  // of the peak rate, where linear and cosine end
  int64_t every = 1000;    // step: multiply by `factor` after every so many steps
  double factor = 0.1;
};
std::vector<Field> fields(ScheduleOptions& o);
// The fields that matter to a kind alone, by its word ("step", ...), for "key without effect" errors.
std::vector<Field> fields_of_kind(ScheduleOptions& o, const std::string& kind);

// Learning rate of step `step` (from 0) of `total`, for a peak of `lr`.
double learning_rate(const ScheduleOptions& o, double lr, int64_t step, int64_t total);

}  // namespace lockstep
