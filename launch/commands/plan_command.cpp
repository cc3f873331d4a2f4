#include <algorithm>
#include <optional>

#include "comm/plan_comm.h"
#include "launch/artifacts/text_table.h"
#include "launch/commands/command_line.h"
#include "launch/commands/commands.h"
#include "launch/training/build_model.h"
#include "launch/training/shared_data.h"
#include "launch/training/step_plan.h"
#include "launch/training/trainer.h"
#include "launch/world/memory_report.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

StepPlan plan_of(Settings& settings, SharedData& data, int ranks, ShardLevel level, int group) {
  settings.parallel.level = level;
  settings.parallel.group = group;
  return plan_step(settings, data, ranks, PlannedRanks::kBusiest);
}

// All levels; with sharding.group also within such groups. The levels that send least come first.
std::vector<StepPlan> plans_of(Settings& settings, SharedData& data, int ranks) {
  const int asked = static_cast<int>(settings.parallel.group);
  std::vector<StepPlan> out{plan_of(settings, data, ranks, ShardLevel::kNone, 1)};
  for (ShardLevel level : {ShardLevel::kOptimizer, ShardLevel::kGradients, ShardLevel::kParameters}) {
    if (ranks == 1) break;
    if (asked > 1 && asked < ranks) out.push_back(plan_of(settings, data, ranks, level, asked));
    out.push_back(plan_of(settings, data, ranks, level, ranks));
  }
  settings.parallel.group = asked;
  return out;
}

bool fits(const StepPlan& p, const Settings& s, int64_t limit) {
  return memory_of(p, s.device.choice == DeviceChoice::kCpu) <= limit;
}

// The keys that select this plan, in addition to those of the file; keys that would have no effect with it are reset.
std::string words(const StepPlan& p, int ranks, const DataParallelOptions& file) {
  std::string out = str("sharding.level=", to_text(p.level));
  if (file.group != 0) out += str(" sharding.group=", p.level != ShardLevel::kNone && p.group < ranks ? p.group : 0);
  if (p.level == ShardLevel::kParameters) return out;
  if (file.gathered_limit_mb != 0) out += " sharding.gathered_limit=0";
  if (file.reshard_after_forward != Reshard::kAuto) out += " sharding.reshard_after_forward=auto";
  return out;
}

std::string table(const std::vector<StepPlan>& plans) {
  std::vector<MemoryUse> shown{MemoryUse::kParameters, MemoryUse::kGradients,   MemoryUse::kMoments,
                               MemoryUse::kGathered,   MemoryUse::kActivations, MemoryUse::kBatches};
  if (plans.back().stats.peak_of(MemoryUse::kInHost) > 0) shown.push_back(MemoryUse::kInHost);
  std::vector<std::vector<std::string>> rows{{"level", "group"}};
  for (MemoryUse use : shown) rows[0].emplace_back(use == MemoryUse::kInHost ? "in host" : to_text(use));
  rows[0].insert(rows[0].end(), {"peak", "saved copy", "sent/step"});
  for (const StepPlan& p : plans) {
    rows.push_back({std::string(to_text(p.level)), str(p.group)});
    for (MemoryUse use : shown) rows.back().push_back(bytes_text(p.stats.peak_of(use)));
    rows.back().push_back(bytes_text(device_peak(p.stats)));
    rows.back().push_back(bytes_text(p.copy));
    rows.back().push_back(bytes_text(p.wire));
  }
  return text_table(rows);
}

// Finds changes that make the run fit, by planning them: first recomputation, which keeps the bits, then smaller
// micro-batches, which do not.
std::string advice(const App& app, const Arguments& a, const Settings& settings, SharedData& data, int ranks,
                   int64_t limit) {
  std::vector<const char*> recomputes{""};
  Stream stream(new_meta_device(), Stream::Mode::kInline);
  WithStream with(stream);
  const auto comm = make_plan_communicator(0, 1);
  const auto model = settings.model->build(task_of(data.open(*comm).train->spec()));
  if (settings.recompute != Recompute::kBlock && apply_recompute(*model, Recompute::kBlock) > 0)
    recomputes.push_back("recompute=block");
  std::optional<int64_t> least;
  for (int64_t micro = settings.batch.micro; micro >= 1; micro /= 2)
    for (const char* recompute : recomputes) {
      std::vector<std::string> overrides = a.rest();
      std::string changes;
      auto change = [&](const std::string& text) {
        overrides.push_back(text);
        changes += str(text, " ");
      };
      if (micro != settings.batch.micro) change(str("batch.micro=", micro));
      if (*recompute) change(recompute);
      if (changes.empty()) continue;
      auto changed = load_settings(app, ConfigTree::load(a.positional[0], overrides), ranks);
      make_plannable(*changed);
      const StepPlan p = plan_of(*changed, data, ranks, ranks > 1 ? ShardLevel::kParameters : ShardLevel::kNone, ranks);
      const int64_t peak = memory_of(p, settings.device.choice == DeviceChoice::kCpu);
      if (fits(p, settings, limit))
        return str("with ", changes, words(p, ranks, settings.parallel), " a rank would take ", bytes_text(peak), "\n");
      least = std::min(least.value_or(peak), peak);
    }
  if (!least) return "use more ranks\n";
  return str(recomputes.size() > 1 ? "neither recompute=block nor smaller micro-batches are enough"
                                   : "smaller micro-batches are not enough",
             ": a rank takes at least ", bytes_text(*least), "; use more ranks\n");
}

}  // namespace

std::vector<Command> plan_forms() {
  return {
      {"plan",
       "plan FILE.yaml [key.path=value ...] --ranks N [--gpu-memory SIZE] [--json]",
       "Computes the memory and traffic of training FILE.yaml on N ranks at every shard level, on any machine: the\n"
       "peak memory of a rank, total and by use, and the bytes that it sends in a step. The steps themselves are\n"
       "executed, on a device that counts bytes and computes nothing. \"saved copy\" is host memory that checkpoints\n"
       "take in addition to the peak, from the first save on. Not counted: scratch memory of kernels, and what the\n"
       "system or a GPU's driver takes. With sharding.group in FILE.yaml, levels are also planned within such\n"
       "groups.",
       {{"ranks", "ranks of the run", "N", "1"},
        {"gpu-memory", "memory of each rank, such as 80GiB or 512MB; prints which level fits", "SIZE", ""},
        {"json", "print one JSON object per level, in bytes"}},
       1}};
}

int plan_command(const App& app, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(plan_forms(), given);
  if (a.help || !is_first_process()) return 0;
  const auto ranks = static_cast<int>(a.integer("ranks", 1, 1 << 20));
  const int64_t limit = a.text("gpu-memory").empty() ? 0 : parse_bytes(a.text("gpu-memory"), "gpu-memory");
  require(limit > 0 || a.text("gpu-memory").empty(), ExitCode::kUsage, "--gpu-memory ", a.text("gpu-memory"),
          ": must be above 0");
  auto settings = load_settings(app, ConfigTree::load(a.positional[0], a.rest()), ranks);
  require(settings->parallel.group == 0 || ranks % settings->parallel.group == 0, ExitCode::kConfig,
          settings->config.place("sharding.group"), ": ", settings->parallel.group, " does not divide ", ranks,
          " ranks");
  make_plannable(*settings);
  SharedData data(*settings);
  const std::vector<StepPlan> plans = plans_of(*settings, data, ranks);
  if (a.has("json")) {
    for (const StepPlan& p : plans) {
      JsonObject line{{"level", std::string(to_text(p.level))},
                      {"group", static_cast<int64_t>(p.group)},
                      {"ranks", static_cast<int64_t>(ranks)}};
      add_memory(line, p.stats, p.wire);
      line.emplace_back("checkpoint_copy_bytes", p.copy);
      if (limit > 0) line.emplace_back("fits", fits(p, *settings, limit));
      print_out(json_line(line) + "\n");
    }
    return 0;
  }
  print_out(str(settings->model_name, " on ", ranks, ranks == 1 ? " rank" : " ranks", ", batch.global ",
                settings->batch.global, ", batch.micro ", settings->batch.micro,
                "; memory of rank 0, the most that a rank sends\n\n", table(plans)));
  if (limit == 0) return 0;
  const auto first =
      std::find_if(plans.begin(), plans.end(), [&](const StepPlan& p) { return fits(p, *settings, limit); });
  print_out(
      first != plans.end()
          ? str("\n", bytes_text(limit), " are enough for ", words(*first, ranks, settings->parallel), "\n")
          : str("\n", bytes_text(limit), " are enough for no level; ", advice(app, a, *settings, data, ranks, limit)));
  return 0;
}

}  // namespace lockstep
