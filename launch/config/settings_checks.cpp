#include "launch/config/settings_checks.h"

#include <algorithm>
#include <filesystem>

#include "core/base/partition.h"

namespace lockstep {
namespace {

// Refuses one setting after another.
class Checks {
 public:
  Checks(const Settings& settings, int ranks) : s_(settings), ranks_(ranks) {}

  void batch() const {
    needs(s_.batch.micro <= s_.batch.global, "batch.micro",
          str(s_.batch.micro, " samples per micro-batch are more than batch.global: ", s_.batch.global));
    const int64_t micro_batches = ceil_div(s_.batch.global, s_.batch.micro);
    needs(ranks_ <= micro_batches, "batch.micro",
          str(ranks_, " ranks are more than the ", micro_batches, " micro-batches of a step (batch.global ",
              s_.batch.global, " / batch.micro ", s_.batch.micro, "): use fewer ranks or smaller micro-batches"));
  }

  void sharding() const {
    const DataParallelOptions& p = s_.parallel;
    const int64_t group = p.group > 0 ? p.group : ranks_;
    needs(ranks_ % group == 0, "sharding.group",
          str(group, " does not divide the ", ranks_, " ranks; use a divisor, or 0 for one group of all"));
    needs(s_.train.loss_rows % 64 == 0, "train.loss_rows", "must be a multiple of 64");
    needs(p.group == 0 || p.level != ShardLevel::kNone, "sharding.group",
          "has an effect only with a sharding.level above none");
    const char* only = "has an effect only with sharding.level: parameters";
    const bool streams = p.level == ShardLevel::kParameters;
    needs(p.reshard_after_forward == Reshard::kAuto || streams, "sharding.reshard_after_forward", only);
    needs(p.gathered_limit_mb == 0 || streams, "sharding.gathered_limit", only);
  }

  void profile() const {
    int64_t last = 0;
    try {
      last = s_.profile.range().second;
    } catch (const Error& e) {
      needs(false, "profile.steps", e.what());
    }
    const bool known = s_.train.length.empty() && s_.train.steps > 0;  // how long the run is
    needs(!known || last <= s_.train.steps, "profile.steps", str("the run ends after step ", s_.train.steps));
  }

  void graph() const {
    needs(!s_.graph || !s_.train.anomaly, "graph",
          "has no effect with train.anomaly, which checks every result on the host");
    needs(!s_.graph || s_.parallel.compute != DType::kFloat16, "graph",
          "cannot be true with precision.compute: fp16, whose loss scale changes from step to step");
    needs(!s_.graph || s_.device.choice != DeviceChoice::kCpu, "graph", "has no effect with device: cpu");
    needs(!s_.graph || s_.data.buckets == 1, "graph",
          "cannot be true with data.buckets, whose micro-batches have several shapes");
    needs(!s_.graph || !s_.chaos.enabled, "graph", "cannot be true with chaos.enabled");
  }

  void device() const {
    const bool cpu = s_.device.choice == DeviceChoice::kCpu;
    needs(!s_.device.share_gpu || !cpu, "share_gpu", "has no effect with device: cpu");
    needs(!s_.device.tf32 || !cpu, "precision.tf32", "has no effect with device: cpu");
    needs(!s_.device.tf32 || s_.parallel.compute == DType::kFloat32, "precision.tf32",
          "has an effect only with precision.compute: fp32");
  }

  void training() const {
    needs(s_.data.bucket_pool == 1 || s_.data.buckets > 1, "data.bucket_pool", "has an effect only with data.buckets");
    needs(!s_.train.eval_ema || s_.optim.ema > 0, "train.eval_ema",
          "there are no averages without optim.ema, their decay; 0.999 is usual");
    const char* only = "has an effect only with train.eval_every, which evaluates during the run";
    needs(s_.train.patience == 0 || s_.train.eval_every > 0, "train.patience", only);
    needs(s_.checkpoint.keep_best == 0 || s_.train.eval_every > 0, "checkpoint.keep_best", only);
    needs(s_.checkpoint.keep_best == 0 || s_.checkpoint.keep_last > 0, "checkpoint.keep_best",
          "cannot be given with checkpoint.keep_last: 0, which keeps all checkpoints");
  }

  // What model, optimizer and schedule say of their own options.
  void choices() const {
    for (auto& [section, kind] :
         std::initializer_list<std::pair<const char*, const Configurable*>>{{"model", s_.model.get()},
                                                                            {"task", s_.task.get()},
                                                                            {"optim", s_.optimizer.get()},
                                                                            {"schedule", s_.schedule.get()}})
      if (const auto [key, why] = kind->problem(); !key.empty()) needs(false, str(section, ".", key), why);
    for (const OptimRule& r : s_.optim.rules)
      needs(!r.pattern.empty(), "optim.rules", "a rule needs a pattern of parameter names, such as '*.bias'");
  }

  void resume(const App& app) const {
    if (s_.resume.allow.empty()) return;
    const std::vector<ConfigKey> known = all_keys(app);
    for (const std::string& key : s_.resume.allow)
      needs(std::any_of(known.begin(), known.end(), [&](auto& k) { return k.key == key && k.shapes_math; }),
            "resume.allow",
            str("'", key, "' is not a key that affects results; such keys may change without being listed"));
  }

  void base() const {
    const bool from = !s_.init.from.empty();
    const LoraOptions& l = s_.lora;
    const char* needs_base = "needs init.from, the model whose parameters are frozen";
    needs(l.rank == 0 || from, "lora.rank", needs_base);
    needs(s_.parallel.frozen_as == FrozenAs::kMasters || from, "precision.frozen", needs_base);
    needs(l.rank == 0 || !l.targets.empty(), "lora.targets",
          "is empty; name the linear layers that get adapters, such as ['*.qkv', '*.proj']");
    for (const auto& [key, is_set] :
         {std::pair("lora.alpha", l.alpha > 0), std::pair("lora.rslora", l.rslora),
          std::pair("lora.dropout", l.dropout > 0), std::pair("lora.targets", !l.targets.empty()),
          std::pair("lora.train", !l.train.empty()), std::pair("lora.dora", l.dora),
          std::pair("lora.rules", !l.rules.empty())})
      needs(l.rank > 0 || !is_set, key, "has an effect only with lora.rank");
    needs(s_.init.fresh.empty() || from, "init.new", "has an effect only with init.from");
    needs(!s_.init.new_classes || !s_.init.fresh.empty(), "init.new_classes",
          "needs init.new, which names the parameters that learn the classes, such as ['head.*']");
  }

  // One directory would be locked twice, and each save copied over itself; within each other, a mirror would hold
  // itself.
  void mirror() const {
    const std::string& mirror = s_.checkpoint.mirror;
    if (mirror.empty()) return;
    namespace fs = std::filesystem;
    const auto folder = [](const std::string& name) {
      std::error_code error;
      const fs::path path = fs::weakly_canonical(name, error);
      return path.has_filename() ? path : path.parent_path();
    };
    const fs::path its = folder(mirror), own = folder(s_.run.dir);
    const auto is_within = [](const fs::path& inner, const fs::path& outer) {
      return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
    };
    needs(its != own, "checkpoint.mirror", "is run.dir itself; give another directory, or none");
    needs(!is_within(its, own), "checkpoint.mirror", "lies within run.dir; give a directory outside of it, or none");
    needs(!is_within(own, its), "checkpoint.mirror", "holds run.dir; give a directory beside it, or none");
  }

  void chaos() const {
    needs(s_.chaos.enabled || s_.chaos.faults.empty(), "chaos.faults", "is refused without chaos.enabled: true");
    for (const ChaosFault& f : s_.chaos.faults) {
      needs(!f.kind.empty(), "chaos.faults", "a fault needs a kind, such as kill");
      needs(f.kind != "slow" || f.seconds > 0, "chaos.faults", "kind: slow needs seconds above 0");
      needs(f.kind == "slow" || f.seconds == 0, "chaos.faults",
            str("seconds is for kind: slow alone, and kind is ", f.kind));
    }
  }

 private:
  void needs(bool good, const std::string& key, const std::string& why) const {
    require(good, ExitCode::kConfig, s_.config.place(key), ": ", why);
  }

  const Settings& s_;
  int ranks_;
};

}  // namespace

void check_settings(const Settings& settings, const App& app, int ranks) {
  const Checks checks(settings, ranks);
  checks.batch();
  checks.sharding();
  checks.profile();
  checks.graph();
  checks.device();
  checks.training();
  checks.choices();
  checks.resume(app);
  checks.base();
  checks.chaos();
  checks.mirror();
}

}  // namespace lockstep
