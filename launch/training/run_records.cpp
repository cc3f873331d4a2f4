// The observers that write a run's numbers: metrics.jsonl and TensorBoard files.
#include <chrono>
#include <cmath>

#include "launch/artifacts/metrics.h"
#include "launch/artifacts/tensorboard.h"
#include "launch/training/run_observer.h"
#include "sharding/bucket_size.h"

namespace lockstep {
namespace {

constexpr int kListedRanks = 64;     // whose times are in each line of metrics
constexpr double kNamedWait = 1e-4;  // seconds: shorter waits for a bucket have no number of their own

// To a microsecond.
JsonText list_of(const std::vector<double>& ms) {
  std::string out;
  for (double v : ms) out += str(out.empty() ? "" : ",", std::round(v * 1e3) / 1e3);
  return {str("[", out, "]")};
}

// To a millisecond.
double seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) / 1e3;
}

double rate_of(const StepReport& r) { return r.step_ms > 0 ? static_cast<double>(r.items) / (r.step_ms / 1e3) : 0; }

class MetricsObserver final : public RunObserver {
 public:
  explicit MetricsObserver(const RunView& run)
      : writer_(run.dir.paths().metrics(), run.trainer.steps_done()),
        rate_(run.trainer.items_unit() + "_per_s"),
        ranks_(run.ranks) {}

  void step(const RunStep& s) override {
    const StepReport& r = s.report;
    JsonObject line{{"loss", r.result.loss},
                    {"lr", r.lr},
                    {"grad_norm", r.result.grad_norm},
                    {rate_, rate_of(r)},
                    {"step_ms", r.step_ms},
                    {"data_ms", r.data_ms},
                    {"forward_ms", r.forward_ms},
                    {"backward_ms", r.backward_ms},
                    {"comm_ms", r.result.exposed_ms},
                    {"optimizer_ms", r.optimizer_ms},
                    {"time", seconds_since_1970()}};
    if (!r.result.finite) line.emplace_back("skipped", true);
    for (auto& [name, one] : r.phases) {
      line.emplace_back("loss/" + name, one.loss);
      line.emplace_back("grad_norm/" + name, one.grad_norm);
    }
    if (ranks_ > 1) add_ranks(r, line);
    if (!s.saved.empty()) {
      line.emplace_back("checkpoint_stall_ms", s.saved.back().stall_ms);
      line.emplace_back("checkpoint_s", s.saved.back().seconds);
    }
    if (s.validation) {
      line.emplace_back("val_loss", s.validation->loss);
      for (auto& [name, value] : s.validation->metrics) line.emplace_back("val_" + name, value);
    }
    writer_.write(r.step, line);
  }
  void check_there() override { writer_.check_there(); }

 private:
  void add_ranks(const StepReport& r, JsonObject& line) const {
    if (ranks_ <= kListedRanks) line.emplace_back("rank_ms", list_of(r.result.busy_ms));
    BucketSizeAdvice step;
    step.add(r.transfers, r.step_ms / 1e3);
    for (auto& [bucket, waited_s] : step.waits())
      if (waited_s >= kNamedWait) line.emplace_back(str("wait_ms/", bucket), waited_s * 1e3);
  }

  MetricsWriter writer_;
  const std::string rate_;
  const int ranks_;
};

class TensorboardObserver final : public RunObserver {
 public:
  explicit TensorboardObserver(const RunView& run)
      : writer_(run.dir.paths().tensorboard(), run.dir.resumed() ? run.trainer.steps_done() + 1 : 0),
        rate_("speed/" + run.trainer.items_unit() + "_per_s") {}

  void step(const RunStep& s) override {
    const StepReport& r = s.report;
    std::vector<std::pair<std::string, double>> scalars{{"train/loss", r.result.loss},
                                                        {"train/lr", r.lr},
                                                        {"train/grad_norm", r.result.grad_norm},
                                                        {rate_, rate_of(r)}};
    for (auto& [name, one] : r.phases) scalars.emplace_back("train/loss/" + name, one.loss);
    if (s.validation) {
      scalars.emplace_back("validation/loss", s.validation->loss);
      for (auto& [name, value] : s.validation->metrics) scalars.emplace_back("validation/" + name, value);
    }
    writer_.scalars(r.step, scalars);
  }

 private:
  EventWriter writer_;
  const std::string rate_;
};

}  // namespace

std::unique_ptr<RunObserver> metrics_observer(const RunView& run) { return std::make_unique<MetricsObserver>(run); }
std::unique_ptr<RunObserver> tensorboard_observer(const RunView& run) {
  return std::make_unique<TensorboardObserver>(run);
}

}  // namespace lockstep
