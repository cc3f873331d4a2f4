// The observer that names in the log a loss or a norm of the gradient that jumps far above what it was.
#include <limits>

#include "core/base/log.h"
#include "core/base/text_table.h"
#include "launch/records/jumps.h"
#include "launch/training/loop/run_observer.h"

namespace lockstep {
namespace {

class Spikes {
 public:
  Spikes(const char* name, const JumpRule& rule) : name_(name), rule_(rule) {}

  void take(int64_t step, double value) {
    constexpr int64_t kQuiet = 100;  // steps in which no other one is named
    const auto usual = jumps_.take(value);
    if (!usual || step - named_ <= kQuiet) return;
    named_ = step;
    log_warning(str("step ", step, ": ", name_, " jumps to ", short_number(value), ", where it was ",
                    short_number(*usual), ": ", rule_.advice));
  }

 private:
  static constexpr size_t kEnough = 16;  // steps
  const char* const name_;
  const JumpRule rule_;
  Jumps jumps_{rule_.times, kEnough};
  int64_t named_ = std::numeric_limits<int64_t>::min() / 2;
};

class SpikeObserver final : public RunObserver {
 public:
  void step(const RunStep& s) override {
    loss_.take(s.report.step, s.report.result.loss);
    norm_.take(s.report.step, s.report.result.grad_norm);
  }

 private:
  Spikes loss_{"the loss", kLossJumps}, norm_{"the norm of the gradient", kNormJumps};
};

}  // namespace

std::unique_ptr<RunObserver> spike_observer(const RunView&) { return std::make_unique<SpikeObserver>(); }

}  // namespace lockstep
