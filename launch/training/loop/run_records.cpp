// The observers that write a run's numbers: metrics.jsonl and TensorBoard files.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/base/log.h"
#include "core/base/text_table.h"
#include "core/io/tensorboard.h"
#include "data/images/codecs/image_codec.h"
#include "launch/records/goodput.h"
#include "launch/records/metrics.h"
#include "launch/training/evaluation/confusion_files.h"
#include "launch/training/loop/run_observer.h"
#include "launch/world/memory_report.h"
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

double rate_of(const StepReport& r) { return r.step_ms > 0 ? static_cast<double>(r.items) / (r.step_ms / 1e3) : 0; }

double megabytes(int64_t bytes) { return std::round(static_cast<double>(bytes) / 1e4) / 100; }

class MetricsObserver final : public RunObserver {
 public:
  explicit MetricsObserver(const RunView& run)
      : writer_(run.dir.paths().metrics(), run.trainer.steps_done()),
        rate_(run.trainer.items_unit() + "_per_s"),
        flops_(run.trainer.flops()),
        items_(static_cast<double>(run.settings.batch.global * run.trainer.items_per_sample())),
        ranks_(run.ranks),
        so_far_(read_goodput(run.dir.paths().dir)) {
    // Also where it is not watched any more: steps that are done again are then not in it.
    const std::string histograms = run.dir.paths().histograms();
    if (!run.settings.train.watch.empty() || std::filesystem::exists(histograms))
      histograms_ = std::make_unique<MetricsWriter>(histograms, run.trainer.steps_done());
  }

  void step(const RunStep& s) override {
    const StepReport& r = s.report;
    const double now = seconds_since_1970();
    so_far_.steps += std::max(0.0, r.step_ms - r.data_ms) / 1e3;
    so_far_.wall = std::max(so_far_.wall, now - so_far_.first);
    const AllocatorStats memory = stats_of_run();
    if (now - resident_at_ > 0.1) {  // the system is asked for it by a file
      resident_ = resident_bytes();
      resident_at_ = now;
    }
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
                    {"memory_mb", megabytes(memory.bytes_in_use)},
                    {"peak_mb", megabytes(memory.peak_bytes)},
                    {"resident_mb", megabytes(resident_)},
                    {"time", now},
                    {"goodput", std::round(1e3 * so_far_.share()) / 1e3}};
    if (flops_ > 0) line.emplace_back("tflops", rounded(flops_of(r) / r.step_ms / 1e9));
    if (!r.result.finite) line.emplace_back("skipped", true);
    for (auto& [name, one] : r.phases) {
      line.emplace_back("loss/" + name, one.loss);
      line.emplace_back("grad_norm/" + name, one.grad_norm);
    }
    for (auto& [name, value] : r.watched.values) line.emplace_back(name, value);
    if (ranks_ > 1) add_ranks(r, line);
    if (!s.saved.empty()) {
      line.emplace_back("checkpoint_stall_ms", s.saved.back().stall_ms);
      line.emplace_back("checkpoint_s", s.saved.back().seconds);
    }
    if (s.validation) {
      line.emplace_back("val_loss", s.validation->loss);
      line.emplace_back("validation_s", std::round(1e3 * s.validation_s) / 1e3);
      for (auto& [name, value] : s.validation->metrics) line.emplace_back("val_" + name, value);
    }
    writer_.write(r.step, line);
    if (!r.watched.spreads.empty()) write_histograms(r);
  }
  void check_there() override {
    writer_.check_there();
    if (histograms_) histograms_->check_there();
  }

 private:
  void write_histograms(const StepReport& r) {
    JsonObject line;
    for (const ValueWatch::Spread& w : r.watched.spreads) {
      std::string text;
      for (const auto& [bucket, count] : w.counts.counts())
        text += str(text.empty() ? "" : ",", "[", bucket, ",", count, "]");
      line.emplace_back(w.name, JsonText{"[" + text + "]"});
    }
    histograms_->write(r.step, line);
  }
  double flops_of(const StepReport& r) const { return flops_ * static_cast<double>(r.items) / items_; }

  void add_ranks(const StepReport& r, JsonObject& line) const {
    if (ranks_ <= kListedRanks) line.emplace_back("rank_ms", list_of(r.result.busy_ms));
    BucketSizeAdvice step;
    step.add(r.transfers, r.step_ms / 1e3);
    for (auto& [bucket, waited_s] : step.waits())
      if (waited_s >= kNamedWait) line.emplace_back(str("wait_ms/", bucket), waited_s * 1e3);
  }

  MetricsWriter writer_;
  std::unique_ptr<MetricsWriter> histograms_;  // where there are any
  const std::string rate_;
  const double flops_, items_;  // of a step without rows that are cut to their bucket
  const int ranks_;
  Goodput so_far_;
  int64_t resident_ = 0;
  double resident_at_ = 0;  // seconds since 1970
};

class TensorboardObserver final : public RunObserver {
 public:
  explicit TensorboardObserver(const RunView& run)
      : writer_(run.dir.paths().tensorboard(), run.dir.resumed() ? run.trainer.steps_done() + 1 : 0),
        rate_("speed/" + run.trainer.items_unit() + "_per_s") {
    // As a block of code in Markdown.
    std::string config = "    " + run.settings.config.text();
    for (size_t at = 0; (at = config.find('\n', at)) != std::string::npos;) config.insert(++at, "    ");
    writer_.text(run.trainer.steps_done(), "config", config);
  }

  void step(const RunStep& s) override {
    const StepReport& r = s.report;
    std::vector<std::pair<std::string, double>> scalars{{"train/loss", r.result.loss},
                                                        {"train/lr", r.lr},
                                                        {"train/grad_norm", r.result.grad_norm},
                                                        {rate_, rate_of(r)}};
    for (auto& [name, one] : r.phases) scalars.emplace_back("train/loss/" + name, one.loss);
    for (auto& [name, value] : r.watched.values) scalars.emplace_back(name, value);
    if (s.validation) {
      scalars.emplace_back("validation/loss", s.validation->loss);
      for (auto& [name, value] : s.validation->metrics) scalars.emplace_back("validation/" + name, value);
    }
    writer_.scalars(r.step, scalars);
    std::vector<EventWriter::Distribution> spreads;
    for (const ValueWatch::Spread& w : r.watched.spreads)
      spreads.push_back({"watch/" + w.name, w.counts, w.sum, w.squares, w.largest});
    if (!spreads.empty()) writer_.histograms(r.step, spreads);
    if (s.validation && pictures_) add_confusion(r.step, s.validation->confusion);
  }

 private:
  void add_confusion(int64_t step, const Confusion& confusion) {
    constexpr int64_t kMostClasses = 256;
    const int64_t labels = std::ssize(by_class(confusion));
    if (confusion.counts.empty() || std::max(labels, confusion.classes) > kMostClasses) return;
    try {
      const ByteImage picture = confusion_picture(confusion);
      writer_.picture(step, "validation/confusion", encode_png(picture), picture.height, picture.width);
    } catch (const Error& e) {
      if (e.code() != ExitCode::kDevice) log_warning_once(str("no picture of the confusion matrix: ", e.what()));
      pictures_ = false;  // kDevice: this build has no PNG
    }
  }

  EventWriter writer_;
  const std::string rate_;
  bool pictures_ = true;
};

}  // namespace

std::unique_ptr<RunObserver> metrics_observer(const RunView& run) { return std::make_unique<MetricsObserver>(run); }
std::unique_ptr<RunObserver> tensorboard_observer(const RunView& run) {
  return std::make_unique<TensorboardObserver>(run);
}

}  // namespace lockstep
