#include "optim/schedule.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

std::vector<Field> fields(ScheduleOptions& o) {
  using Kind = ScheduleOptions::Kind;
  return {
      enum_field(
          "name", o.kind,
          {{"constant", Kind::kConstant}, {"linear", Kind::kLinear}, {"cosine", Kind::kCosine}, {"step", Kind::kStep}},
          "how the learning rate moves after warm-up"),
      field("warmup", o.warmup, "the learning rate grows from 0 to optim.lr over this many steps")
          .with_unit("steps")
          .at_least(0)};
}

std::vector<Field> fields_of_kind(ScheduleOptions& o, const std::string& kind) {
  if (kind == "linear" || kind == "cosine")
    return {field("steps", o.steps, "step at which the schedule ends; 0: train.steps").with_unit("steps").at_least(0),
            field("final_ratio", o.final_ratio, "learning rate at the end, as a part of optim.lr").with_range(0, 1)};
  if (kind == "step")
    return {field("every", o.every, "the learning rate is multiplied by schedule.factor after every so many steps")
                .with_unit("steps")
                .at_least(1),
            field("factor", o.factor, "see schedule.every").with_range(0, 1)};
  return {};
}

double learning_rate(const ScheduleOptions& o, double lr, int64_t step, int64_t total) {
  if (step < o.warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(o.warmup);
  const double end = static_cast<double>(o.steps > 0 ? o.steps : total), begin = static_cast<double>(o.warmup);
  const double progress = end > begin ? std::clamp((static_cast<double>(step) - begin) / (end - begin), 0.0, 1.0) : 1.0;
  switch (o.kind) {
    case ScheduleOptions::Kind::kConstant: return lr;
    case ScheduleOptions::Kind::kLinear: return lr * (1 - (1 - o.final_ratio) * progress);
    case ScheduleOptions::Kind::kCosine:
      return lr * (o.final_ratio + (1 - o.final_ratio) * 0.5 * (1 + std::cos(M_PI * progress)));
    case ScheduleOptions::Kind::kStep: return lr * std::pow(o.factor, static_cast<double>((step - o.warmup) / o.every));
  }
  return lr;
}

}  // namespace lockstep
