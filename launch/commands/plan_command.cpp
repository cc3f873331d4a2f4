#include <algorithm>
#include <optional>
#include <set>

#include "comm/plan_comm.h"
#include "core/base/partition.h"
#include "launch/artifacts/text_table.h"
#include "launch/commands/command_line.h"
#include "launch/commands/commands.h"
#include "launch/training/shared_data.h"
#include "launch/training/trainer.h"
#include "launch/world/memory_report.h"
#include "launch/world/world.h"
#include "sharding/tree.h"

namespace lockstep {
namespace {

struct LayoutPlan {
  ShardLevel level;
  int group;             // ranks that share one copy of the state
  AllocatorStats stats;  // of rank 0
  int64_t wire = 0;      // the most bytes that a rank sends in a step
  int64_t copy = 0;      // the most bytes that a rank saves; a copy stays in host memory from the first save on
};

// The rank that sends the most, if each rank sums a contiguous range of a step's micro-batches. A rank sends one buffer
// for each of the largest tree nodes within its range to its shard group, and then together with that group to the
// other groups.
int busiest_rank(int64_t micro_batches, int ranks, int group) {
  auto range = [&](int r) { return split_evenly(micro_batches, ranks, r); };
  auto nodes = [&](Range r) { return static_cast<double>(maximal_nodes(r, micro_batches).size()); };
  const double within = 1 - 1.0 / group, across = (1 - static_cast<double>(group) / ranks) / group;
  int busiest = 0;
  double most = -1;
  for (int r = 0; r < ranks; ++r) {
    const int first = r / group * group;
    const double sent = within * nodes(range(r)) + across * nodes({range(first).begin, range(first + group - 1).end});
    if (sent > most) most = sent, busiest = r;
  }
  return busiest;
}

// Runs the first steps of a rank on the device without bytes. The first step allocates memory that later ones reuse;
// the last step of an epoch may be smaller.
void plan_rank(const Settings& settings, SharedData& data, int rank, int ranks, LayoutPlan& plan) {
  const Device device = new_meta_device();
  Stream stream(device, Stream::Mode::kInline);
  WithStream with(stream);
  const auto comm = make_plan_communicator(rank, ranks, plan.group);
  Trainer trainer(settings, data.open(*comm), *comm);
  for (int step = 0; step < 3; ++step) {
    const int64_t before = comm->bytes_sent();
    if (step == 1) reset_peak_bytes(device);
    trainer.step();
    plan.wire = std::max(plan.wire, comm->bytes_sent() - before);
  }
  int64_t copy = 0;
  for (const StateEntry& e : trainer.entries_to_save()) copy += e.data.bytes();
  plan.copy = std::max(plan.copy, copy);
  if (rank == 0) plan.stats = allocator_stats(device);
}

LayoutPlan plan_of(Settings& settings, SharedData& data, int ranks, ShardLevel level, int group) {
  settings.parallel.level = level;
  settings.parallel.group = group;
  settings.graph = false;  // needs a GPU
  LayoutPlan plan{level, group, {}};
  std::set<int> planned{0, ranks - 1};
  if (level < ShardLevel::kGradients)
    planned.insert(busiest_rank(ceil_div(settings.batch.global, settings.batch.micro), ranks, group));
  // Other ranks differ by a few bytes, since shards are not of exactly equal size.
  for (int rank = 0; ranks <= 4 && rank < ranks; ++rank) planned.insert(rank);
  for (int rank : planned) plan_rank(settings, data, rank, ranks, plan);
  return plan;
}

// All levels; with sharding.group also within such groups. The levels that send least come first.
std::vector<LayoutPlan> plans_of(Settings& settings, SharedData& data, int ranks) {
  const int asked = static_cast<int>(settings.parallel.group);
  std::vector<LayoutPlan> out{plan_of(settings, data, ranks, ShardLevel::kNone, 1)};
  for (ShardLevel level : {ShardLevel::kOptimizer, ShardLevel::kGradients, ShardLevel::kParameters}) {
    if (ranks == 1) break;
    if (asked > 1 && asked < ranks) out.push_back(plan_of(settings, data, ranks, level, asked));
    out.push_back(plan_of(settings, data, ranks, level, ranks));
  }
  settings.parallel.group = asked;
  return out;
}

// On a CPU the copy for checkpoints takes the same memory.
int64_t most_of(const LayoutPlan& p, const Settings& s) {
  return device_peak(p.stats) + (s.device.choice == DeviceChoice::kCpu ? p.copy : 0);
}
bool fits(const LayoutPlan& p, const Settings& s, int64_t limit) { return most_of(p, s) <= limit; }

// The keys that select this plan, in addition to those of the file; keys that would have no effect with it are reset.
std::string words(const LayoutPlan& p, int ranks, const DataParallelOptions& file) {
  std::string out = cat("sharding.level=", to_text(p.level));
  if (file.group != 0) out += cat(" sharding.group=", p.level != ShardLevel::kNone && p.group < ranks ? p.group : 0);
  if (p.level == ShardLevel::kParameters) return out;
  if (file.gathered_limit_mb != 0) out += " sharding.gathered_limit=0";
  if (file.reshard_after_forward != Reshard::kAuto) out += " sharding.reshard_after_forward=auto";
  return out;
}

std::string table(const std::vector<LayoutPlan>& plans) {
  std::vector<MemoryUse> shown{MemoryUse::kParameters, MemoryUse::kGradients,   MemoryUse::kMoments,
                               MemoryUse::kGathered,   MemoryUse::kActivations, MemoryUse::kBatches};
  if (plans.back().stats.peak_of(MemoryUse::kInHost) > 0) shown.push_back(MemoryUse::kInHost);
  std::vector<std::vector<std::string>> rows{{"level", "group"}};
  for (MemoryUse use : shown) rows[0].emplace_back(use == MemoryUse::kInHost ? "in host" : to_text(use));
  rows[0].insert(rows[0].end(), {"peak", "saved copy", "sent/step"});
  for (const LayoutPlan& p : plans) {
    rows.push_back({std::string(to_text(p.level)), cat(p.group)});
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
        changes += cat(text, " ");
      };
      if (micro != settings.batch.micro) change(cat("batch.micro=", micro));
      if (*recompute) change(recompute);
      if (changes.empty()) continue;
      auto changed = load_settings(app, ConfigTree::load(a.positional[0], overrides), ranks);
      changed->data.memory = 0;
      changed->verify.every = 0;  // there are no replicas to compare
      const LayoutPlan p =
          plan_of(*changed, data, ranks, ranks > 1 ? ShardLevel::kParameters : ShardLevel::kNone, ranks);
      const int64_t peak = most_of(p, settings);
      if (fits(p, settings, limit))
        return cat("with ", changes, words(p, ranks, settings.parallel), " a rank would take ", bytes_text(peak), "\n");
      least = std::min(least.value_or(peak), peak);
    }
  if (!least) return "use more ranks\n";
  return cat(recomputes.size() > 1 ? "neither recompute=block nor smaller micro-batches are enough"
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
  settings->data.memory = 0;   // only the data's shapes are needed
  settings->verify.every = 0;  // there are no replicas to compare
  SharedData data(*settings);
  const std::vector<LayoutPlan> plans = plans_of(*settings, data, ranks);
  if (a.has("json")) {
    for (const LayoutPlan& p : plans) {
      JsonObject line{{"level", std::string(to_text(p.level))},
                      {"group", static_cast<int64_t>(p.group)},
                      {"ranks", static_cast<int64_t>(ranks)}};
      add_memory(line, p.stats, p.wire);
      line.emplace_back("checkpoint_copy_bytes", p.copy);
      if (limit > 0) line.emplace_back("fits", fits(p, *settings, limit));
      print(json_line(line) + "\n");
    }
    return 0;
  }
  print(cat(settings->model_name, " on ", ranks, ranks == 1 ? " rank" : " ranks", ", batch.global ",
            settings->batch.global, ", batch.micro ", settings->batch.micro,
            "; memory of rank 0, the most that a rank sends\n\n", table(plans)));
  if (limit == 0) return 0;
  const auto first =
      std::find_if(plans.begin(), plans.end(), [&](const LayoutPlan& p) { return fits(p, *settings, limit); });
  print(
      first != plans.end()
          ? cat("\n", bytes_text(limit), " are enough for ", words(*first, ranks, settings->parallel), "\n")
          : cat("\n", bytes_text(limit), " are enough for no level; ", advice(app, a, *settings, data, ranks, limit)));
  return 0;
}

}  // namespace lockstep
