// Schedules: the learning rate as a pure function of the step. Settings owns the schedule of a run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/choice.h"

namespace lockstep {

// The learning rate after warm-up.
class Schedule : public Configurable {
 public:
  // The learning rate at `step` >= warmup (both counted from 0) of a run of `total` steps, as a fraction of the peak.
  virtual double part(int64_t step, int64_t warmup, int64_t total) const = 0;
  // The option that holds the step at which the schedule ends, where 0 means the last step of the run; null if it has
  // none.
  virtual int64_t* end() { return nullptr; }
};

class ConstantSchedule final : public Schedule {
 public:
  double part(int64_t, int64_t, int64_t) const override { return 1; }
};

// Decreases from the peak to a fraction of it, which is reached at the step where the schedule ends.
class FallingSchedule : public Schedule {
 public:
  struct Options {
    int64_t steps = 0;       // the step at which it ends; 0: train.steps
    double final_ratio = 0;  // fraction of the peak at the end
  };
  std::vector<Field> options() override;
  int64_t* end() override { return &options_.steps; }

 protected:
  FallingSchedule() = default;
  explicit FallingSchedule(const Options& o) : options_(o) {}
  double progress(int64_t step, int64_t warmup, int64_t total) const;  // from 0 at the peak to 1 at the end
  Options options_;
};
class LinearSchedule final : public FallingSchedule {
 public:
  LinearSchedule() = default;
  explicit LinearSchedule(const Options& o) : FallingSchedule(o) {}
  double part(int64_t step, int64_t warmup, int64_t total) const override;
};
class CosineSchedule final : public FallingSchedule {
 public:
  CosineSchedule() = default;
  explicit CosineSchedule(const Options& o) : FallingSchedule(o) {}
  double part(int64_t step, int64_t warmup, int64_t total) const override;
};

// Multiplies the learning rate by `factor` after every `every` steps.
class StepSchedule final : public Schedule {
 public:
  struct Options {
    int64_t every = 1000;
    double factor = 0.1;
  };
  StepSchedule() = default;
  explicit StepSchedule(const Options& o) : options_(o) {}
  std::vector<Field> options() override;
  double part(int64_t step, int64_t warmup, int64_t total) const override;

 private:
  Options options_;
};

// Warm-up, stable, decay (Hu et al., "MiniCPM", 2024): stays at the peak, then falls in a straight line over the last
// part of the steps.
class StableSchedule final : public FallingSchedule {
 public:
  struct OwnOptions {
    double decay = 0.2;  // the part of the steps after warm-up in which it falls
  };
  StableSchedule() = default;
  StableSchedule(const Options& o, const OwnOptions& own) : FallingSchedule(o), own_(own) {}
  std::vector<Field> options() override;
  double part(int64_t step, int64_t warmup, int64_t total) const override;

 private:
  OwnOptions own_;
};

// Falls with the root of the steps (Vaswani et al., "Attention is all you need", 2017): sqrt(warmup / step), with 1 in
// place of a warmup of 0. It has no end, so that a run can be made longer.
class InverseRootSchedule final : public Schedule {
 public:
  double part(int64_t step, int64_t warmup, int64_t total) const override;
};

// Falls by half a cosine and begins again at the peak, in periods that may grow (Loshchilov and Hutter, "SGDR", 2017).
class RestartSchedule final : public Schedule {
 public:
  struct Options {
    int64_t period = 1000;   // steps of the first period
    double growth = 1;       // each period is this many times as long as the one before
    double final_ratio = 0;  // fraction of the peak at a period's end
  };
  RestartSchedule() = default;
  explicit RestartSchedule(const Options& o) : options_(o) {}
  std::vector<Field> options() override;
  std::pair<std::string, std::string> problem() const override;  // a growth that rounding takes away
  double part(int64_t step, int64_t warmup, int64_t total) const override;

 private:
  Options options_;
};

// One cycle (Smith and Topin, "Super-convergence", 2018): rises by half a cosine to the peak and falls by half a
// cosine.
class OneCycleSchedule final : public FallingSchedule {
 public:
  struct OwnOptions {
    double rise = 0.3;          // the part of the steps in which it rises
    double start_ratio = 0.04;  // fraction of the peak at the first step
  };
  OneCycleSchedule() = default;
  OneCycleSchedule(const Options& o, const OwnOptions& own) : FallingSchedule(o), own_(own) {}
  std::vector<Field> options() override;
  double part(int64_t step, int64_t warmup, int64_t total) const override;

 private:
  OwnOptions own_;
};

// constant, linear, cosine, step, stable, inverse_root, restarts, one_cycle
std::vector<Choice<Schedule>> builtin_schedules();

struct ScheduleOptions {
  std::string name = "constant";  // schedule.name, a choice
  int64_t warmup = 0;             // steps in which the rate rises from 0 to the peak
};
// Beside the name.
std::vector<Field> fields(ScheduleOptions& o);

// Learning rate of step `step` (from 0) of `total`, for a peak of `lr`.
double learning_rate(const Schedule& schedule, int64_t warmup, double lr, int64_t step, int64_t total);

}  // namespace lockstep
