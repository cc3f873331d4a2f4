#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "core/base/log.h"
#include "core/device/allocator.h"
#include "core/io/json.h"
#include "launch/command_line.h"
#include "launch/commands.h"
#include "launch/memory_advice.h"
#include "launch/memory_report.h"
#include "launch/trainer.h"
#include "launch/world.h"

namespace lockstep {
namespace {

// Seconds since this process was started, by the kernel's clock.
double process_age() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  const size_t after_name = text.rfind(')');
  if (after_name == std::string::npos) return 0;
  // starttime is field 22; the name is field 2.
  size_t at = after_name + 2;
  for (int field = 3; field < 22; ++field) at = text.find(' ', at) + 1;
  double now = 0;
  uptime >> now;
  return now - static_cast<double>(std::stoll(text.substr(at))) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}
double rounded(double v) { return std::round(v * 1000) / 1000; }

}  // namespace

int bench_command(const App& app, const std::vector<std::string>& given) {
  const Command command{
      "bench",
      "bench FILE.yaml [key.path=value ...] [--steps N] [--warmup N] [--ranks N]",
      "Times training steps without writing anything. The last line is one JSON object: median and least step time in\n"
      "ms, its parts, items a second, time from the program's start to the end of the first step, memory: the most "
      "that\n"
      "this process, or rank 0's GPU, had in use, in all and by use; and the bytes that rank 0 sends in a step.",
      {{"steps", "steps that are timed", "N", "20"},
       {"warmup", "steps before them", "N", "5"},
       {"ranks", "ranks in this process", "N", "0"}},
      1};
  const Arguments a = parse_arguments(command, given);
  if (a.help) return 0;
  const int asked = static_cast<int>(a.integer("ranks")), ranks = world_size(asked);
  const int64_t steps = a.integer("steps"), warmup = a.integer("warmup");
  require(steps > 0 && warmup > 0, ExitCode::kUsage, "lockstep bench: --steps and --warmup must be above 0");
  auto settings =
      load_settings(app, ConfigTree::load(a.positional[0], {a.positional.begin() + 1, a.positional.end()}), ranks);
  WorldOptions world;
  world.ranks = asked;
  world.threads = settings->compute.threads;
  world.device = settings->device;
  SharedData data(app, *settings);
  const auto bench = [&](Communicator& comm) {
    Trainer trainer(*settings, data.open(comm), comm);
    std::vector<double> total, loading, forward, backward, exposed, optimizer;
    double first_s = 0, items = 0, loss = 0;
    AllocatorStats before{};
    int64_t wire = 0;
    for (int64_t i = 0; i < warmup + steps; ++i) {
      if (i == warmup) reset_peak_of_run();
      const int64_t sent = comm.bytes_sent();
      const StepReport r = trainer.step();
      wire = std::max(wire, comm.bytes_sent() - sent);
      if (i == 0) first_s = process_age();
      if (i == warmup) before = stats_of_run();
      items = static_cast<double>(r.items);
      loss = r.result.loss;
      if (i < warmup) continue;
      total.push_back(r.step_ms);
      loading.push_back(r.data_ms);
      forward.push_back(r.forward_ms);
      backward.push_back(r.backward_ms);
      exposed.push_back(r.result.exposed_ms);
      optimizer.push_back(r.optimizer_ms);
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const AllocatorStats after = stats_of_run();
    const double ms = median(total);
    if (comm.rank() == 0) {
      JsonObject line{{"model", settings->model_name},
                      {"parameters", trainer.parameter_count()},
                      {"ranks", static_cast<int64_t>(comm.size())},
                      {"backend", std::string(comm.backend())},
                      {"threads", static_cast<int64_t>(current_stream().threads())},
                      {"device", to_text(current_device())},
                      {"isa", trainer.info().isa},
                      {"ms", rounded(ms)},
                      {"min_ms", rounded(*std::min_element(total.begin(), total.end()))},
                      {"data_ms", rounded(median(loading))},
                      {"forward_ms", rounded(median(forward))},
                      {"backward_ms", rounded(median(backward))},
                      {"comm_ms", rounded(median(exposed))},
                      {"optimizer_ms", rounded(median(optimizer))},
                      {trainer.items_unit() + "_per_s", rounded(items / ms * 1e3)},
                      {"first_step_s", rounded(first_s)},
                      {"rss_mb", static_cast<int64_t>(usage.ru_maxrss / 1024)},
                      {"system_allocations", after.system_allocations - before.system_allocations},
                      {"loss", rounded(loss)}};
      add_memory(line, after, wire);
      print(json_line(line) + "\n");
    }
    comm.barrier("end of bench");
  };
  return run_world(world,
                   [&](Communicator& comm) { with_memory_advice(*settings, comm.size(), [&] { bench(comm); }); });
}

}  // namespace lockstep
