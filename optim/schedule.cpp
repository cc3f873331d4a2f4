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

std::vector<Field> StableSchedule::options() {
  auto all = FallingSchedule::options();
  all.push_back(
      field("decay", own_.decay, "part of the steps after warm-up, at the end, in which the learning rate falls")
          .with_range(0, 1));
  return all;
}

double StableSchedule::part(int64_t step, int64_t warmup, int64_t total) const {
  const double stable = 1 - own_.decay, done = progress(step, warmup, total);
  return done <= stable ? 1 : 1 - (1 - options_.final_ratio) * (done - stable) / own_.decay;
}

double InverseRootSchedule::part(int64_t step, int64_t warmup, int64_t) const {
  const double first = static_cast<double>(std::max<int64_t>(warmup, 1));
  return std::sqrt(first / (first + static_cast<double>(step - warmup)));
}

std::vector<Field> RestartSchedule::options() {
  return {field("period", options_.period, "steps until the learning rate begins again at optim.lr")
              .with_unit("steps")
              .at_least(1),
          field("growth", options_.growth,
                "each period is this many times as long as the one before, rounded to whole steps")
              .with_range(1, 100),
          field("final_ratio", options_.final_ratio, "learning rate at a period's end, as a fraction of optim.lr")
              .with_range(0, 1)};
}

std::pair<std::string, std::string> RestartSchedule::problem() const {
  const auto period = static_cast<double>(options_.period);
  if (options_.growth == 1 || std::round(period * options_.growth) > period) return {};
  return {"growth", str(options_.growth, " times a period of ", options_.period, " steps is again a whole number of ",
                        options_.period, ": no period would ever be longer; take ", 1 + 0.5 / period,
                        " or more, a longer schedule.period, or 1 for equal periods")};
}

double RestartSchedule::part(int64_t step, int64_t warmup, int64_t) const {
  double at = static_cast<double>(step - warmup), period = static_cast<double>(options_.period);
  if (options_.growth == 1) at = std::fmod(at, period);
  else
    for (; at >= period; period = std::round(period * options_.growth)) at -= period;
  return options_.final_ratio + (1 - options_.final_ratio) * 0.5 * (1 + std::cos(M_PI * at / period));
}

std::vector<Field> OneCycleSchedule::options() {
  auto all = FallingSchedule::options();
  all.push_back(
      field("rise", own_.rise, "part of the steps in which the learning rate rises to optim.lr").with_range(0, 1));
  all.push_back(field("start_ratio", own_.start_ratio, "learning rate at the first step, as a fraction of optim.lr")
                    .with_range(0, 1));
  return all;
}

double OneCycleSchedule::part(int64_t step, int64_t warmup, int64_t total) const {
  const double done = progress(step, warmup, total);
  const bool rises = done < own_.rise;
  const double from = rises ? own_.start_ratio : options_.final_ratio;  // the lower end of this half
  const double height = rises ? done / own_.rise : own_.rise < 1 ? (1 - done) / (1 - own_.rise) : 0;
  return from + (1 - from) * 0.5 * (1 - std::cos(M_PI * height));
}

std::vector<Choice<Schedule>> builtin_schedules() {
  return {choice<Schedule, ConstantSchedule>("constant"), choice<Schedule, LinearSchedule>("linear"),
          choice<Schedule, CosineSchedule>("cosine"),     choice<Schedule, StepSchedule>("step"),
          choice<Schedule, StableSchedule>("stable"),     choice<Schedule, InverseRootSchedule>("inverse_root"),
          choice<Schedule, RestartSchedule>("restarts"),  choice<Schedule, OneCycleSchedule>("one_cycle")};
}

double learning_rate(const Schedule& schedule, int64_t warmup, double lr, int64_t step, int64_t total) {
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  return lr * schedule.part(step, warmup, total);
}

}  // namespace lockstep
