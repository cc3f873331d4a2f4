// The observer that writes about.json: model, data, ranks and memory of a run, for `lockstep report`.
#include <optional>

#include "core/base/log.h"
#include "core/io/files.h"
#include "launch/training/loop/run_observer.h"
#include "launch/world/memory_report.h"

namespace lockstep {
namespace {

constexpr int64_t kTypicalSteps = 3;  // after so many, memory has been what it will be

JsonText modules_of(const RunView& run) {
  std::vector<JsonObject> out;
  const auto& frozen = run.settings.parallel.frozen;
  for (auto& [name, shape] : run.trainer.placed().parameter_shapes()) {
    std::vector<JsonValue> sizes;
    for (int d = 0; d < shape.rank(); ++d) sizes.emplace_back(shape[d]);
    out.push_back({{"name", name}, {"shape", json_array(sizes)}});
    if (frozen && frozen(name)) out.back().emplace_back("frozen", true);
  }
  return json_array(out);
}

// Of a sample's forward pass, by module.
JsonText flops_of(const TrialPass& pass) {
  JsonObject out;
  for (const auto& [module, flops] : pass.flops) out.emplace_back(module, flops);
  return {json_line(out)};
}

JsonObject about(const RunView& run) {
  const Settings& s = run.settings;
  const Trainer& t = run.trainer;
  const std::vector<JsonValue> machines(run.machines.begin(), run.machines.end());
  return {{"lockstep", t.info().writer},
          {"model", s.model_name},
          {"task", t.task_kind()},
          {"parameters", t.parameter_count()},
          {"batch", s.batch.global},
          {"micro", s.batch.micro},
          {"samples", t.samples_per_epoch()},
          {"unit", t.items_unit()},
          {"units_per_sample", t.items_per_sample()},
          {"flops", t.flops()},
          {"ranks", int64_t{run.ranks}},
          {"backend", t.backend()},
          {"threads", int64_t{current_stream().threads()}},
          {"isa", t.info().isa},
          {"compute", std::string(to_text(s.parallel.compute))},
          {"level", std::string(to_text(s.parallel.level))},
          {"group", s.parallel.group},
          {"machines", json_array(machines)},
          {"modules", modules_of(run)},
          {"module_flops", flops_of(t.trial())}};
}

// {"step":50,"counts":[[of label 0, by predicted class], ...]}; nothing where there is none to be looked at.
std::optional<JsonValue> confusion_of(int64_t step, const Confusion& confusion) {
  constexpr size_t kMostClasses = 100;
  const size_t labels = by_class(confusion).size(), classes = static_cast<size_t>(confusion.classes);
  if (confusion.counts.empty() || std::max(labels, classes) > kMostClasses) return std::nullopt;
  std::vector<std::vector<JsonValue>> counts(labels, std::vector<JsonValue>(classes, int64_t{0}));
  for (const auto& [cell, count] : confusion.counts)
    counts[static_cast<size_t>(cell.first)][static_cast<size_t>(cell.second)] = count;
  std::vector<JsonValue> rows;
  for (const auto& row : counts) rows.emplace_back(json_array(row));
  return JsonText{json_line({{"step", step}, {"counts", json_array(rows)}})};
}

class AboutObserver final : public RunObserver {
 public:
  explicit AboutObserver(const RunView& run) : path_(run.dir.paths().about()), about_(about(run)) {
    // Of an earlier attempt, until this one has its own.
    const auto before = parse_json_object(read_head(path_, 8 << 20));
    const auto keep = [&](const char* key, std::optional<JsonValue>& member) {
      if (const JsonValue* value = before ? find_member(*before, key) : nullptr) member = *value;
    };
    keep("memory", memory_);
    keep("peak", peak_);
    keep("confusion", confusion_);
    write();
  }

  void step(const RunStep& s) override {
    if (s.validation) confusion_ = confusion_of(s.report.step, s.validation->confusion);
    if (++steps_ == kTypicalSteps || s.validation) write();
  }
  void end() override { write(); }

 private:
  // A disk that is full does not end the run.
  void write() {
    if (steps_ > 0) {
      const AllocatorStats stats = stats_of_run();
      JsonObject memory{{"peak", device_peak(stats)}};
      for (int use = 0; use < kMemoryUses; ++use)
        memory.emplace_back(std::string(to_text(static_cast<MemoryUse>(use))),
                            stats.peak_of(static_cast<MemoryUse>(use)));
      memory_ = JsonText{json_line(memory)};
      peak_ = JsonText{json_line(peak_json(memory_peak(current_device())))};
    }
    JsonObject all = about_;
    if (memory_) all.emplace_back("memory", *memory_);
    if (peak_) all.emplace_back("peak", *peak_);
    if (confusion_) all.emplace_back("confusion", *confusion_);
    try {
      replace_file(path_, json_line(all) + "\n");
    } catch (const Error& e) {
      log_warning_once(e.what());
    }
  }

  const std::string path_;
  const JsonObject about_;
  std::optional<JsonValue> memory_, peak_, confusion_;
  int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<RunObserver> about_observer(const RunView& run) { return std::make_unique<AboutObserver>(run); }

}  // namespace lockstep
