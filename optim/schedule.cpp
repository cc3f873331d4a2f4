#include "optim/schedule.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

std::vector<Field> fields(ScheduleOptions& o) {
  return {field("warmup", o.warmup, "the learning rate grows from 0 to optim.lr over this many steps")
              .with_unit("steps")
              .at_least(0)};
}

std::vector<Field> FallingSchedule::options() {
  return {
      field("steps", options_.steps, "step at which the schedule ends; 0: train.steps").with_unit("steps").at_least(0),
      field("final_ratio", options_.final_ratio, "learning rate at the end, as a fraction of optim.lr")
          .with_range(0, 1)};
}

double FallingSchedule::progress(int64_t step, int64_t warmup, int64_t total) const {
  const double end = static_cast<double>(options_.steps > 0 ? options_.steps : total);
  const double begin = static_cast<double>(warmup);
  return end > begin ? std::clamp((static_cast<double>(step) - begin) / (end - begin), 0.0, 1.0) : 1.0;
}

double LinearSchedule::part(int64_t step, int64_t warmup, int64_t total) const {
  return 1 - (1 - options_.final_ratio) * progress(step, warmup, total);
}

double CosineSchedule::part(int64_t step, int64_t warmup, int64_t total) const {
  return options_.final_ratio + (1 - options_.final_ratio) * 0.5 * (1 + std::cos(M_PI * progress(step, warmup, total)));
}

std::vector<Field> StepSchedule::options() {
  return {field("every", options_.every, "multiply the learning rate by schedule.factor after every N steps")
              .with_unit("steps")
              .at_least(1),
          field("factor", options_.factor, "see schedule.every").with_range(0, 1)};
}

double StepSchedule::part(int64_t step, int64_t warmup, int64_t) const {
  return std::pow(options_.factor, static_cast<double>((step - warmup) / options_.every));
}

std::vector<Choice<Schedule>> builtin_schedules() {
  return {choice<Schedule, ConstantSchedule>("constant"), choice<Schedule, LinearSchedule>("linear"),
          choice<Schedule, CosineSchedule>("cosine"), choice<Schedule, StepSchedule>("step")};
}

double learning_rate(const Schedule& schedule, int64_t warmup, double lr, int64_t step, int64_t total) {
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  return lr * schedule.part(step, warmup, total);
}

}  // namespace lockstep
