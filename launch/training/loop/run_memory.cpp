// The observer of `profile.memory`: what held the memory of each step when it was most, in profile/memory.jsonl, and in
// the log.
#include <cmath>
#include <filesystem>

#include "core/base/log.h"
#include "core/device/context.h"
#include "core/device/memory_peak.h"
#include "core/io/files.h"
#include "launch/records/metrics.h"
#include "launch/training/loop/run_observer.h"
#include "launch/world/memory_report.h"

namespace lockstep {
namespace {

constexpr int64_t kFirstSteps = 3;     // after so many, memory has been what it will be
constexpr double kNewLine = 0.01;      // of a step's peak: a change that has a line of its own
constexpr double kNamedGrowth = 0.10;  // of the peak: growth that the log names

class MemoryObserver final : public RunObserver {
 public:
  explicit MemoryObserver(const RunView& run) {
    make_folder(run.dir.paths().profile());
    writer_ = std::make_unique<MetricsWriter>(run.dir.paths().memory_profile(), run.trainer.steps_done());
    take_memory_peak(current_device());  // what came before belongs to no step
  }

  void step(const RunStep& s) override {
    const MemoryPeak peak = take_memory_peak(current_device());
    if (++steps_ == 1 || differs(peak.bytes, written_, kNewLine)) {
      writer_->write(s.report.step, peak_json(peak));
      written_ = peak.bytes;
    }
    if (peak.bytes > most_.bytes) most_ = peak, step_ = s.report.step;
    if (steps_ == kFirstSteps || (steps_ > kFirstSteps && differs(most_.bytes, named_, kNamedGrowth))) name();
  }
  void end() override {
    if (steps_ > 0 && named_ == 0) name();
  }
  void check_there() override { writer_->check_there(); }

 private:
  static bool differs(int64_t bytes, int64_t from, double part) {
    return std::abs(static_cast<double>(bytes - from)) > part * static_cast<double>(from);
  }
  void name() {
    named_ = most_.bytes;
    log_info(str("memory: ", bytes_text(most_.bytes), " at the peak of step ", step_, ", ", peak_text(most_)));
  }

  std::unique_ptr<MetricsWriter> writer_;
  int64_t steps_ = 0, written_ = 0, named_ = 0, step_ = 0;
  MemoryPeak most_;
};

}  // namespace

std::unique_ptr<RunObserver> memory_observer(const RunView& run) {
  const std::string file = run.dir.paths().memory_profile();
  if (!run.settings.profile.memory) {
    // Steps that are done again are then not in what an earlier attempt wrote.
    if (std::filesystem::exists(file)) MetricsWriter(file, run.trainer.steps_done());
    return nullptr;
  }
  return std::make_unique<MemoryObserver>(run);
}

}  // namespace lockstep
