#include "launch/training/loop/run_progress.h"

#include <optional>

#include "core/base/text_table.h"
#include "launch/terminal/progress.h"

namespace lockstep {
namespace {

ProgressOptions options_of(const RunView& run) {
  const Settings& s = run.settings;
  ProgressOptions o;
  o.title = "train";
  o.total = s.train.steps;
  o.start = run.trainer.steps_done();
  const bool cut = s.data.buckets > 1;  // rows have several lengths
  o.rate_unit = cut ? "samples" : run.trainer.items_unit();
  o.rate_scale = static_cast<double>(s.batch.global * (cut ? 1 : run.trainer.items_per_sample()));
  return o;
}

class ProgressObserver final : public RunObserver {
 public:
  explicit ProgressObserver(const RunView& run) {
    const ProgressOptions o = options_of(run);
    if (o.start == 0 || o.start < o.total) progress_.emplace(o);
  }
  void step(const RunStep& s) override { progress_->set(s.report.step, str("loss ", fixed(s.report.result.loss, 4))); }
  void pause() override { progress_->pause(); }
  void end() override {
    if (progress_) progress_->finish();
  }

 private:
  std::optional<Progress> progress_;  // none where no step is left
};

}  // namespace

std::unique_ptr<RunObserver> progress_observer(const RunView& run) { return std::make_unique<ProgressObserver>(run); }

}  // namespace lockstep
