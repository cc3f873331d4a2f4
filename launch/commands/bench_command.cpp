#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "core/base/host.h"
#include "core/base/median.h"
#include "core/base/text_table.h"
#include "core/device/allocator.h"
#include "core/io/json.h"
#include "launch/commands/commands.h"
#include "launch/commands/job.h"
#include "launch/terminal/output.h"
#include "launch/training/profiling/breakdown.h"
#include "launch/world/memory_report.h"

namespace lockstep {
namespace {

// Peak of dense matrix products in bf16 or fp16 with fp32 accumulation, in 10^12 operations per second, from NVIDIA's
// data sheets of A100, H100, H200 and B200 (half of the figure if it is given with sparsity). 0: not known.
double peak_tflops(std::string_view gpu) {
  constexpr std::pair<std::string_view, double> kPeaks[] = {{"H100 PCIe", 756},   {"H100 NVL", 835}, {"H200 NVL", 835},
                                                            {"H100", 989},        {"H200", 989},     {"A100", 312},
                                                            {"NVIDIA B200", 2250}};
  for (auto& [name, peak] : kPeaks)
    if (gpu.find(name) != gpu.npos) return peak;
  return 0;
}

JsonValue known(double v) { return v > 0 ? JsonValue(v) : JsonValue(nullptr); }

// Of each timed step, in milliseconds.
struct StepTimes {
  std::vector<double> total, loading, forward, backward, exposed, optimizer;

  void add(const StepReport& r) {
    total.push_back(r.step_ms);
    loading.push_back(r.data_ms);
    forward.push_back(r.forward_ms);
    backward.push_back(r.backward_ms);
    exposed.push_back(r.result.exposed_ms);
    optimizer.push_back(r.optimizer_ms);
  }
};

struct Measured {
  StepTimes times;
  double mean_ms = 0;                // of a step, from the first timed one until the device is idle
  double first_s = 0;                // from the start of the program to the end of the first step
  double items = 0;                  // of a step, on average
  double loss = 0;                   // of the last step
  int64_t wire = 0;                  // the most bytes that a rank sent in a step
  AllocatorStats before{}, after{};  // the timed steps
};

struct BenchSteps {
  int64_t warmup, timed;
  bool breaks_down;

  // How many may have begun while step i is not done. As in training, the next step is started before the previous one
  // ends. The first step, which is timed separately, and the warm-up wait until the device is idle.
  int64_t may_begin(int64_t i) const { return i == 0 ? 1 : i < warmup ? warmup : warmup + timed; }
};

// `breakdown` begins with the timed steps, where it is wanted. All ranks call it.
Measured time_steps(Trainer& trainer, Communicator& comm, const BenchSteps& steps,
                    std::optional<Breakdown>& breakdown) {
  using Clock = std::chrono::steady_clock;
  Measured m;
  Clock::time_point begun;
  for (int64_t i = 0; i < steps.warmup + steps.timed; ++i) {
    if (i == steps.warmup) {
      current_stream().synchronize();
      reset_peak_of_run();
      if (steps.breaks_down) breakdown.emplace();
      begun = Clock::now();
    }
    while (trainer.may_start() && trainer.steps_started() < steps.may_begin(i)) {
      const int64_t sent = comm.bytes_sent();
      trainer.start();
      m.wire = std::max(m.wire, comm.bytes_sent() - sent);
    }
    const StepReport r = trainer.finish();
    if (i == 0) m.first_s = process_age();
    if (i == steps.warmup) m.before = stats_of_run();
    m.loss = r.result.loss;
    if (i < steps.warmup) continue;
    m.items += static_cast<double>(r.items) / static_cast<double>(steps.timed);
    m.times.add(r);
    if (breakdown) breakdown->take_step();
  }
  current_stream().synchronize();
  m.mean_ms =
      std::chrono::duration<double, std::milli>(Clock::now() - begun).count() / static_cast<double>(steps.timed);
  m.after = stats_of_run();
  const auto wires = all_gather_values(comm, m.wire, "bytes sent");
  m.wire = *std::max_element(wires.begin(), wires.end());
  return m;
}

JsonObject line_of(const Settings& s, const Trainer& trainer, const Communicator& comm, const Measured& m) {
  const Device device = current_device();
  const bool gpu = device.type == DeviceType::kCuda, low = size_of(s.parallel.compute) == 2;
  const std::string name = gpu ? device_backend().properties(device.index).name : "";
  // Where rows are cut to their bucket, products are fewer in proportion.
  const double whole = static_cast<double>(s.batch.global * trainer.items_per_sample());
  const double tflops = trainer.flops() * (m.items / whole) / m.mean_ms / 1e9;
  const double peak = gpu && low && !s.device.share_gpu ? comm.size() * peak_tflops(name) : 0;
  JsonObject line{{"model", s.model_name},
                  {"parameters", trainer.parameter_count()},
                  {"ranks", static_cast<int64_t>(comm.size())},
                  {"backend", std::string(comm.backend())},
                  {"threads", static_cast<int64_t>(current_stream().threads())},
                  {"device", to_text(device)},
                  {"gpu", gpu ? JsonValue(name) : JsonValue(nullptr)},
                  {"isa", trainer.info().isa},
                  {"compute", std::string(to_text(s.parallel.compute))},
                  {"batch", s.batch.global},
                  {"ms", rounded(median(m.times.total))},
                  {"mean_ms", rounded(m.mean_ms)},
                  {"min_ms", rounded(*std::min_element(m.times.total.begin(), m.times.total.end()))},
                  {"data_ms", rounded(median(m.times.loading))},
                  {"forward_ms", rounded(median(m.times.forward))},
                  {"backward_ms", rounded(median(m.times.backward))},
                  {"comm_ms", rounded(median(m.times.exposed))},
                  {"optimizer_ms", rounded(median(m.times.optimizer))},
                  {trainer.items_unit() + "_per_s", rounded(m.items / m.mean_ms * 1e3)},
                  {"tflops", known(rounded(tflops))},
                  {"peak_tflops", known(peak)},
                  {"mfu", known(peak > 0 ? rounded(tflops / peak) : 0)},
                  {"first_step_s", rounded(m.first_s)},
                  {"rss_mb", peak_resident_bytes() >> 20},
                  {"system_allocations", m.after.system_allocations - m.before.system_allocations},
                  {"loss", rounded(m.loss)}};
  add_memory(line, m.after, m.wire);
  return line;
}

}  // namespace

std::vector<Command> bench_forms() {
  return {
      {"bench",
       "bench FILE.yaml [key.path=value ...] [--steps N] [--warmup N] [--ranks N] [--breakdown]",
       "Times training steps without writing any files. On a GPU, lines name the algorithms that the libraries chose "
       "for\n"
       "each shape (algorithms.txt of a run), unless --json is given. The last line of output is one JSON object with: "
       "ms, the\n"
       "median time of a step on the host, the shortest one, and the times of its parts; mean_ms, the mean time of a\n"
       "step from the first timed step until the device is idle, and the throughput by it; the seconds from the\n"
       "start of the program to the end of the first step; tflops of the model's matrix products, and mfu, their\n"
       "fraction of the GPU's peak if that is known; the peak memory of this process's device, total and by use; and\n"
       "the most bytes that a rank sends in a step.",
       {{"steps", "steps that are timed", "N", "20"},
        {"warmup", "untimed steps before those", "N", "5"},
        {"ranks", "ranks in this process", "N", "0"},
        {"breakdown", "print tables of rank 0's time by operation, with the rate that each reaches, before that line"},
        {"json", "that line alone; not with --breakdown"}},
       1}};
}

int bench_command(const App& app, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(bench_forms(), given);
  if (a.help) return 0;
  const bool breaks_down = a.has("breakdown");
  require(!breaks_down || !a.has("json"), ExitCode::kUsage,
          "--breakdown cannot be combined with --json, which prints one JSON object only");
  constexpr int64_t kMost = 1'000'000'000;
  const int64_t steps = a.integer("steps", 1, kMost), warmup = a.integer("warmup", 1, kMost);
  const auto settings = settings_of_file(app, a);
  return Job(*settings, a.ranks()).run("bench", [&](Communicator& comm, const Datasets& data) {
    Trainer trainer(*settings, data, comm);
    std::optional<Breakdown> breakdown;
    const Measured m = time_steps(trainer, comm, {warmup, steps, breaks_down && comm.rank() == 0}, breakdown);
    const DeviceType device = current_device().type;
    std::string result;
    if (comm.rank() == 0) {
      result = json_line(line_of(*settings, trainer, comm, m)) + "\n";
      if (device == DeviceType::kCuda && !a.has("json")) result = device_backend().choices() + result;
    }
    comm.barrier("end of the timed steps");
    // Runs after the memory figures are taken, and on all ranks at the same time, since they share the machine during a
    // step too.
    const MachineLimits limits = breaks_down && device == DeviceType::kCpu ? measure_limits() : MachineLimits{};
    if (breakdown) result = breakdown->text(m.mean_ms, limits) + result;
    if (comm.rank() == 0) print_out(result);
  });
}

}  // namespace lockstep
