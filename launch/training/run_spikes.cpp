// The observer that names in the log a loss or a norm of the gradient that jumps far above what it was.
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/base/median.h"
#include "launch/artifacts/text_table.h"
#include "launch/training/run_observer.h"

namespace lockstep {
namespace {

constexpr size_t kBefore = 32, kEnough = 16;  // steps that a step is held against, and how many there must be
constexpr int64_t kQuiet = 100;               // steps in which one of a kind is not named again

class Spikes {
 public:
  Spikes(const char* name, double times, const char* advice) : name_(name), times_(times), advice_(advice) {}

  void take(int64_t step, double value) {
    if (!std::isfinite(value)) return;  // which is said elsewhere
    if (before_.size() >= kEnough && step - named_ > kQuiet) {
      const double usual = median(std::vector<double>(before_.begin(), before_.end()));
      if (usual > 0 && value > times_ * usual) {
        named_ = step;
        log_warning(str("step ", step, ": ", name_, " jumps to ", short_number(value), ", where it was ",
                        short_number(usual), ": ", advice_));
      }
    }
    before_.push_back(value);
    if (before_.size() > kBefore) before_.pop_front();
  }

 private:
  const char* const name_;
  const double times_;
  const char* const advice_;
  std::deque<double> before_;
  int64_t named_ = std::numeric_limits<int64_t>::min() / 2;
};

class SpikeObserver final : public RunObserver {
 public:
  void step(const RunStep& s) override {
    loss_.take(s.report.step, s.report.result.loss);
    norm_.take(s.report.step, s.report.result.grad_norm);
  }

 private:
  Spikes loss_{"the loss", 2, "a lower optim.lr, a longer schedule.warmup or optim.clip_norm avoids it"};
  Spikes norm_{"the norm of the gradient", 20,
               "optim.clip_norm bounds what such a step does; train.watch says in which layer it begins"};
};

}  // namespace

std::unique_ptr<RunObserver> spike_observer(const RunView&) { return std::make_unique<SpikeObserver>(); }

}  // namespace lockstep
