#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "comm/plan/plan_comm.h"
#include "core/base/log.h"
#include "core/base/median.h"
#include "core/base/partition.h"
#include "core/base/text_table.h"
#include "core/io/files.h"
#include "launch/arguments/command_line.h"
#include "launch/commands/commands.h"
#include "launch/config/run_length.h"
#include "launch/terminal/output.h"
#include "launch/training/loop/step_plan.h"
#include "launch/training/step/shared_data.h"
#include "launch/training/step/trainer.h"
#include "launch/training/weights/build_model.h"
#include "launch/world/memory_report.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

// What the command was asked.
struct Request {
  const App& app;
  const Arguments& arguments;
  int ranks = 1, machine_ranks = 0;
  int64_t limit = 0;  // bytes of a rank's memory; 0: not given
};

StepPlan plan_of(const Request& q, Settings& settings, SharedData& data, ShardLevel level, int group) {
  settings.parallel.level = level;
  settings.parallel.group = group;
  return plan_step(settings, data, q.ranks, PlannedRanks::kBusiest, q.machine_ranks);
}

// All levels; with sharding.group also within such groups. The levels that send least come first.
std::vector<StepPlan> plans_of(const Request& q, Settings& settings, SharedData& data) {
  const int asked = static_cast<int>(settings.parallel.group);
  std::vector<StepPlan> out{plan_of(q, settings, data, ShardLevel::kNone, 1)};
  for (ShardLevel level : {ShardLevel::kOptimizer, ShardLevel::kGradients, ShardLevel::kParameters}) {
    if (q.ranks == 1) break;
    if (asked > 1 && asked < q.ranks) out.push_back(plan_of(q, settings, data, level, asked));
    out.push_back(plan_of(q, settings, data, level, q.ranks));
  }
  settings.parallel.group = asked;
  return out;
}

int64_t memory_of(const StepPlan& p, const Settings& s) { return memory_of(p, !plans_gpus(s)); }
bool fits(const StepPlan& p, const Settings& s, int64_t limit) { return fits_with_margin(memory_of(p, s), limit); }

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
  const bool in_memory = plans.back().in_memory > 0;
  rows[0].insert(rows[0].end(), {"peak", "saved copy"});
  if (in_memory) rows[0].emplace_back("in memory");
  rows[0].emplace_back("sent/step");
  for (const StepPlan& p : plans) {
    rows.push_back({std::string(to_text(p.level)), str(p.group)});
    for (MemoryUse use : shown) rows.back().push_back(bytes_text(p.stats.peak_of(use)));
    rows.back().push_back(bytes_text(device_peak(p.stats)));
    rows.back().push_back(bytes_text(p.copy));
    if (in_memory) rows.back().push_back(bytes_text(p.in_memory));
    rows.back().push_back(bytes_text(p.wire));
  }
  return text_table(rows);
}

std::string explained_peaks(const std::vector<StepPlan>& plans) {
  std::string out = "\nWhat a rank holds at the peak:\n";
  for (const StepPlan& p : plans)
    out += str("  ", to_text(p.level), plans.size() > 4 ? str(" in groups of ", p.group) : "", ": ", peak_text(p.peak),
               "\n");
  return out;
}

// What plan executes in the place of the run, whose configuration has these overrides as well, on the same device.
std::unique_ptr<Settings> changed_settings(const Request& q, const Settings& settings,
                                           const std::vector<std::string>& changes) {
  std::vector<std::string> overrides = q.arguments.rest();
  overrides.insert(overrides.end(), changes.begin(), changes.end());
  auto out = load_settings(q.app, ConfigTree::load(q.arguments.positional[0], overrides), q.ranks);
  make_plannable(*out);
  out->device = settings.device;
  out->train = settings.train;  // with the steps that the data gave
  return out;
}

int64_t micro_batches_of_rank(const Settings& s, int ranks) {
  return ceil_div(ceil_div(s.batch.global, s.batch.micro), ranks);
}

constexpr const char* kFastGivesUp =
    "the library adds in an order of its own, so that bits depend on the number of ranks and may differ from run to "
    "run";

// Why the gradients of a rank take more than one copy of them at level none, the first of `plans`, and what takes less;
// "" where they do not, or nothing does.
std::string explained_gradients(const Request& q, const Settings& settings, SharedData& data,
                                const std::vector<StepPlan>& plans) {
  const auto gradients_of = [](const StepPlan& p) { return p.stats.peak_of(MemoryUse::kGradients); };
  const StepPlan& none = plans[0];
  const int64_t held = gradients_of(none), micro_batches = micro_batches_of_rank(settings, q.ranks);
  const bool exact = settings.parallel.reduce == ReduceMode::kExact;
  if (2 * held < 3 * none.gradient) return "";
  std::vector<std::string> ways;
  const auto add = [&](const std::string& way, int64_t takes, const std::string& but) {
    if (takes < held) ways.push_back(str(way, " takes ", bytes_text(takes), but));
  };
  const auto with = [&](const std::string& change) {
    const auto other = changed_settings(q, settings, {change});
    return gradients_of(plan_of(q, *other, data, ShardLevel::kNone, 1));
  };
  const auto sharded =
      std::find_if(plans.begin(), plans.end(), [](auto& p) { return p.level == ShardLevel::kGradients; });
  if (sharded != plans.end())
    add("sharding.level=gradients, which keeps a rank's slice of each,", gradients_of(*sharded),
        exact ? ": the same bits" : "");
  if (micro_batches > 1) {
    const std::string whole = str("batch.micro=", ceil_div(settings.batch.global, q.ranks));
    add(str("fewer micro-batches a rank: ", whole, ", which is one,"), with(whole),
        str(", with more activations and other bits",
            settings.recompute == Recompute::kNone ? " (recompute=block takes fewer)" : ""));
  }
  if (q.ranks > 1 && exact) add("reduce=fast", with("reduce=fast"), str(": ", kFastGivesUp));
  if (ways.empty()) return "";
  std::string out =
      micro_batches > 1
          ? str("\nA rank adds the gradients of its ", micro_batches,
                " micro-batches of a step in a fixed tree (reduce: ", exact ? "exact" : "fast",
                "). Its pending partial sums\ntake ")
          : str("\nA rank's gradients and what ranks exchange of them (reduce: ", exact ? "exact" : "fast", ")\ntake ");
  out += str(bytes_text(held), q.ranks > 1 ? " below sharding.level=gradients" : "", "; one copy of the gradients is ",
             bytes_text(none.gradient), ". These take less:\n");
  for (size_t i = 0; i < ways.size(); ++i) out += str("  ", ways[i], i + 1 < ways.size() ? ";\n" : ".\n");
  return out;
}

// Finds changes that make the run fit, by planning them: first recomputation, which keeps the bits, then smaller and
// larger micro-batches, which do not, then sums of the library.
std::string advice(const Request& q, const Settings& settings, SharedData& data) {
  std::vector<const char*> recomputes{""}, reduces{""};
  Stream stream(new_meta_device(), Stream::Mode::kInline);
  WithStream with(stream);
  const auto comm = make_plan_communicator(0, 1);
  const auto model = settings.model->build(task_of(data.open(*comm).train->spec()));
  if (settings.recompute != Recompute::kBlock && apply_recompute(*model, Recompute::kBlock) > 0)
    recomputes.push_back("recompute=block");
  if (q.ranks > 1 && settings.parallel.reduce == ReduceMode::kExact) reduces.push_back("reduce=fast");
  std::vector<int64_t> micros;
  for (int64_t micro = settings.batch.micro; micro >= 1; micro /= 2) micros.push_back(micro);
  for (int64_t micro = 2 * settings.batch.micro; micro <= settings.batch.global / q.ranks; micro *= 2)
    micros.push_back(micro);
  std::optional<int64_t> least;
  for (const char* reduce : reduces)
    for (const int64_t micro : micros)
      for (const char* recompute : recomputes) {
        std::vector<std::string> changes;
        if (micro != settings.batch.micro) changes.push_back(str("batch.micro=", micro));
        if (*recompute) changes.emplace_back(recompute);
        if (*reduce) changes.emplace_back(reduce);
        if (changes.empty()) continue;
        const auto changed = changed_settings(q, settings, changes);
        const StepPlan p =
            plan_of(q, *changed, data, q.ranks > 1 ? ShardLevel::kParameters : ShardLevel::kNone, q.ranks);
        std::string words_of_changes;
        for (const std::string& change : changes) words_of_changes += change + " ";
        if (fits(p, settings, q.limit))
          return str("with ", words_of_changes, words(p, q.ranks, settings.parallel), " a rank would take ",
                     bytes_text(memory_of(p, settings)), *reduce ? str(" (reduce=fast: ", kFastGivesUp, ")") : "",
                     "\n");
        least = std::min(least.value_or(memory_of(p, settings)), memory_of(p, settings));
      }
  if (!least) return "use more ranks\n";
  std::vector<std::string> tried;
  if (recomputes.size() > 1) tried.emplace_back("recompute=block");
  if (micros.size() > 1) tried.emplace_back("other micro-batches");
  if (reduces.size() > 1) tried.emplace_back("reduce=fast");
  std::string out = tried.size() > 1 ? "neither " : "";
  for (size_t i = 0; i < tried.size(); ++i) out += str(i == 0 ? "" : " nor ", tried[i]);
  return str(out, tried.size() > 1 ? " makes it fit" : " is not enough", ": a rank takes at least ", bytes_text(*least),
             "; use more ranks\n");
}

// Which level fits into `limit` bytes, or what would; and how much of it is kept free.
std::string judged(const Request& q, const Settings& settings, SharedData& data, const std::vector<StepPlan>& plans) {
  const int64_t limit = q.limit;
  const auto first = std::find_if(plans.begin(), plans.end(), [&](auto& p) { return fits(p, settings, limit); });
  const auto barely = std::find_if(plans.begin(), first, [&](auto& p) { return memory_of(p, settings) <= limit; });
  std::string out = str("\n", bytes_text(limit), " are enough for ");
  out += first != plans.end() ? str(words(*first, q.ranks, settings.parallel), "\n")
                              : str("no level; ", advice(q, settings, data));
  const auto kept = limit - static_cast<int64_t>(kPlannedShare * static_cast<double>(limit));
  out += str(bytes_text(kept), " of them (", std::lround(100 * (1 - kPlannedShare)),
             "%) are kept free for what is not counted: kernels' scratch memory, the system, a GPU's driver");
  if (barely != first)
    out += str("; sharding.level=", to_text(barely->level), " takes ", bytes_text(memory_of(*barely, settings)),
               ", which is more than the rest");
  return out + "\n";
}

// The figures that times are planned from, and where each comes from.
struct TimeFigures {
  PlannedRates rates;
  std::optional<bool> gpus;         // whether --health is of GPUs
  std::string of_rank, of_machine;  // "600000 GF/s (--flops) and 3000 GB/s of memory (--memory-rate)"
};

// What `doctor --json` printed: the middle of its ranks and of the latencies between machines, and what machines send
// while all do.
TimeFigures figures_of_health(const std::string& path) {
  TimeFigures out;
  std::vector<double> flops, memory, latencies;
  std::vector<std::string> machines;
  each_line(path, [&](const std::string& line) {
    const auto o = parse_json_object(line);
    require(o.has_value(), ExitCode::kBadData, "--health ", path, ": this line is no JSON object: ", line);
    const std::string kind = text_of(*o, "kind");
    if (kind == "rank") {
      flops.push_back(json_number(*o, "gflops", path));
      memory.push_back(json_number(*o, "memory_gb_s", path));
      machines.push_back(json_text(*o, "machine", path) + json_text(*o, "host", path));
      out.gpus = out.gpus.value_or(true) && !text_of(*o, "gpu").empty();
    } else if (kind == "link") {
      const auto a = static_cast<size_t>(json_int(*o, "a", path)), b = static_cast<size_t>(json_int(*o, "b", path));
      require(a < machines.size() && b < machines.size(), ExitCode::kBadData, "--health ", path,
              ": a link of a rank that is not there: ", line);
      if (machines[a] != machines[b]) latencies.push_back(json_number(*o, "latency_us", path));
    } else if (kind == "exchange") {
      out.rates.links.bytes_s = json_number(*o, "mb_s", path) * 1e6;
    }
  });
  require(!flops.empty(), ExitCode::kBadData, "--health ", path,
          ": has no ranks; it is what `lockstep doctor --json` prints");
  out.rates.flops_s = median(flops) * 1e9;
  out.rates.memory_bytes_s = median(memory) * 1e9;
  if (!latencies.empty()) out.rates.links.latency_s = median(latencies) * 1e-6;
  return out;
}

TimeFigures figures_of(const Arguments& a, bool several_machines) {
  const std::string& health = a.text("health");
  TimeFigures out;
  if (!health.empty()) out = figures_of_health(health);
  const std::string measured =
      health.empty() ? "" : str("--health ", health, ", measured on ", *out.gpus ? "GPUs" : "CPUs");
  const auto take = [&](const char* option, double unit, const char* text, double& value, std::string& list) {
    const bool given = !a.text(option).empty();
    if (given) value = a.number(option, 1e-6) * unit;
    const double shown = value / unit;
    list += str(list.empty() ? "" : " and ", fixed(shown, shown < 100 ? 1 : 0), text, " (",
                given ? str("--", option) : measured, ")");
  };
  PlannedRates& rates = out.rates;
  take("flops", 1e9, " GF/s", rates.flops_s, out.of_rank);
  take("memory-rate", 1e9, " GB/s of memory", rates.memory_bytes_s, out.of_rank);
  take("latency", 1e-6, " us a message", rates.links.latency_s, out.of_machine);
  take("bandwidth", 1e6, " MB/s a machine", rates.links.bytes_s, out.of_machine);
  rates.links.memory_bytes_s = rates.memory_bytes_s;
  require(rates.flops_s > 0 && rates.memory_bytes_s > 0, ExitCode::kUsage,
          "--time needs a rank's speed: --health FILE, which `lockstep doctor --json` printed, or --flops and "
          "--memory-rate");
  require(
      !several_machines || (rates.links.latency_s > 0 && rates.links.bytes_s > 0), ExitCode::kUsage,
      "--time on several machines needs their links: --health FILE of a doctor on several machines, or --latency and "
      "--bandwidth");
  out.of_rank += " a rank";
  if (several_machines) out.of_rank += str("; between machines ", out.of_machine);
  return out;
}

// Which device is planned for, and why; settles it in `settings`. With --gpu-memory it is a GPU, and by --health what
// was measured, whatever this machine has.
std::string chosen_device(const Request& q, const std::optional<TimeFigures>& figures, Settings& settings) {
  DeviceChoice& choice = settings.device.choice;
  std::string why = settings.config.place("device");
  bool gpus = plans_gpus(settings);
  if (choice == DeviceChoice::kAuto) {
    if (q.limit > 0) {
      gpus = true;
      why += ": auto, and --gpu-memory is given";
    } else if (figures && figures->gpus) {
      gpus = *figures->gpus;
      why += str(": auto, and --health was measured on ", gpus ? "GPUs" : "CPUs");
    } else {
      why += str(": auto, and this machine has ", gpus ? "a GPU driver" : "no GPU driver");
    }
  }
  choice = gpus ? DeviceChoice::kCuda : DeviceChoice::kCpu;
  if (figures && figures->gpus && *figures->gpus != gpus)
    log_warning(str("times are planned for ", gpus ? "GPUs" : "CPUs", ", but --health ", q.arguments.text("health"),
                    " was measured on ", gpus ? "CPUs" : "GPUs"));
  return str("planned for ", gpus ? (q.ranks > 1 ? "GPUs, which exchange by NCCL" : "GPUs") : "CPUs", " (", why, ")");
}

StepTime time_of(const Request& q, Settings& settings, SharedData& data, const StepPlan& p, const PlannedRates& rates) {
  const DataParallelOptions of_file = settings.parallel;
  settings.parallel.level = p.level;
  settings.parallel.group = p.group;
  const StepTime time = time_step(settings, data, q.ranks, q.machine_ranks, rates);
  settings.parallel = of_file;
  return time;
}

std::string times_text(const std::vector<StepPlan>& plans, const std::vector<StepTime>& times, int64_t samples) {
  std::vector<std::vector<std::string>> rows{{"level", "group", "step", "compute", "waits", "efficiency", "samples/s"}};
  const auto ms = [](double s) { return fixed(1e3 * s, 1) + " ms"; };
  for (size_t i = 0; i < plans.size(); ++i) {
    const StepTime& t = times[i];
    rows.push_back({std::string(to_text(plans[i].level)), str(plans[i].group), ms(t.step_s), ms(t.compute_s),
                    ms(t.step_s - t.compute_s), fixed(100 * t.efficiency(), 1) + "%",
                    fixed(static_cast<double>(samples) / t.step_s, 1)});
  }
  return text_table(rows);
}

}  // namespace

std::vector<Command> plan_forms() {
  return {
      {"plan",
       "plan FILE.yaml [key.path=value ...] --ranks N [--machine-ranks K] [--gpu-memory SIZE] [--time ...] [--json]",
       "Computes the memory and traffic of training FILE.yaml on N ranks at every shard level, on any machine: the\n"
       "peak memory of a rank, total and by use, and the bytes that it sends in a step. The steps themselves are\n"
       "executed, on a device that counts bytes and computes nothing. \"saved copy\" is host memory that checkpoints\n"
       "take in addition to the peak, from the first save on. Not counted: scratch memory of kernels, and what the\n"
       "system or a GPU's driver takes: a tenth of --gpu-memory is kept free for them. With sharding.group in\n"
       "FILE.yaml, levels are also planned within such groups. --time predicts how long a step takes, from what\n"
       "`lockstep doctor --json` measured or from the figures that are given: the same steps with simulated time.\n"
       "Loading of data and differences between ranks are not in it.",
       {{"ranks", "ranks of the run", "N", "1"},
        {"gpu-memory", "memory of each rank, such as 80GiB or 512MB; prints which level fits", "SIZE", ""},
        {"machine-ranks", "ranks of each machine; 0: all are on one", "K", "0"},
        {"time", "predict a step's time at each level"},
        {"health", "what `lockstep doctor --json` printed", "FILE", ""},
        {"flops", "GF/s of a rank's products, in place of the file's", "GFLOPS", ""},
        {"memory-rate", "GB/s that a rank reads and writes large tensors with", "RATE", ""},
        {"latency", "microseconds of a small message between machines", "US", ""},
        {"bandwidth", "MB/s of a machine's link to the others, each way", "RATE", ""},
        {"json", "print one JSON object per level, in bytes and milliseconds"}},
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
  const auto machine_ranks = static_cast<int>(a.integer("machine-ranks", 0, 1 << 20));
  require(machine_ranks == 0 || ranks % machine_ranks == 0, ExitCode::kUsage, "--machine-ranks ", machine_ranks,
          " does not divide ", ranks, " ranks");
  const Request q{app, a, ranks, machine_ranks, limit};
  std::optional<TimeFigures> figures;
  if (a.has("time")) figures = figures_of(a, machine_ranks > 0 && machine_ranks < ranks);
  for (const char* option : {"health", "flops", "memory-rate", "latency", "bandwidth"})
    require(figures || a.text(option).empty(), ExitCode::kUsage, "--", option, " has an effect only with --time");
  const std::string device = chosen_device(q, figures, *settings);
  SharedData data(*settings);
  const std::vector<StepPlan> plans = plans_of(q, *settings, data);
  std::vector<StepTime> times;
  for (size_t i = 0; figures && i < plans.size(); ++i)
    times.push_back(time_of(q, *settings, data, plans[i], figures->rates));
  if (a.has("json")) {
    for (const StepPlan& p : plans) {
      JsonObject line{{"level", std::string(to_text(p.level))},
                      {"group", static_cast<int64_t>(p.group)},
                      {"ranks", static_cast<int64_t>(ranks)},
                      {"device", std::string(plans_gpus(*settings) ? "cuda" : "cpu")},
                      {"steps", settings->train.steps}};
      add_memory(line, p.stats, p.wire);
      line.emplace_back("checkpoint_copy_bytes", p.copy);
      if (p.in_memory > 0) line.emplace_back("recovery_bytes", p.in_memory);
      line.emplace_back("gradient_copy_bytes", p.gradient);
      line.emplace_back("peak", JsonText{json_line(peak_json(p.peak))});
      if (limit > 0) line.emplace_back("fits", fits(p, *settings, limit));
      if (!times.empty()) {
        const StepTime& t = times[static_cast<size_t>(&p - plans.data())];
        line.emplace_back("step_ms", 1e3 * t.step_s);
        line.emplace_back("compute_ms", 1e3 * t.compute_s);
        line.emplace_back("efficiency", t.efficiency());
      }
      print_out(json_line(line) + "\n");
    }
    return 0;
  }
  print_out(str(settings->model_name, " on ", ranks, ranks == 1 ? " rank" : " ranks", ", batch.global ",
                settings->batch.global, ", batch.micro ", settings->batch.micro,
                settings->train.length.empty() ? "" : ", ",
                settings->train.length.empty() ? "" : length_text(*settings),
                "; memory of rank 0, the most that a rank sends\n", device, "\n\n", table(plans)));
  print_out(explained_peaks(plans));
  if (!times.empty())
    print_out(str("\n", times_text(plans, times, settings->batch.global), "from ", figures->of_rank, "\n"));
  print_out(explained_gradients(q, *settings, data, plans));
  if (limit > 0) print_out(judged(q, *settings, data, plans));
  return 0;
}

}  // namespace lockstep
