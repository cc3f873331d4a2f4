#include "launch/training/loop/step_plan.h"

#include <algorithm>
#include <set>

#include "core/base/partition.h"
#include "core/device/backend.h"
#include "launch/recovery/memory_recovery.h"
#include "launch/training/evaluation/reference.h"
#include "launch/training/step/trial_pass.h"
#include "launch/world/memory_report.h"
#include "sharding/tree.h"

namespace lockstep {
namespace {

// The rank that sends the most, if each rank sums a contiguous range of a step's micro-batches. A rank sends one buffer
// for each of the largest tree nodes within its range to its shard group, and then together with that group to the
// other groups.
int busiest_rank(int64_t micro_batches, int ranks, int group) {
  auto range = [&](int r) { return split_evenly(micro_batches, ranks, r); };
  auto nodes = [&](IndexRange r) { return static_cast<double>(maximal_nodes(r, micro_batches).size()); };
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

int group_of(const Settings& settings, int ranks) {
  if (settings.parallel.group > 0) return static_cast<int>(settings.parallel.group);
  return settings.parallel.level == ShardLevel::kNone ? 1 : ranks;
}

PlannedMachines machines_of(const Settings& settings, int machine_ranks, PlannedLinks* links = nullptr) {
  return {machine_ranks, plans_gpus(settings), links};
}

// Runs the first steps of a rank on the device without bytes. The first step allocates memory that later ones reuse;
// the last step of an epoch may be smaller.
void plan_rank(const Settings& settings, SharedData& data, int rank, int ranks, int machine_ranks,
               const std::function<void(const Trainer&)>& look, StepPlan& plan) {
  const Device device = new_meta_device();
  Stream stream(device, Stream::Mode::kInline);
  WithStream with(stream);
  const auto comm = make_plan_communicator(rank, ranks, machines_of(settings, machine_ranks));
  Trainer trainer(settings, data.open(*comm), *comm);
  if (look) look(trainer);
  for (int step = 0; step < 3; ++step) {
    const int64_t before = comm->bytes_sent();
    if (step == 1) reset_peak_bytes(device);
    trainer.step();
    plan.wire = std::max(plan.wire, comm->bytes_sent() - before);
  }
  int64_t copy = 0;
  for (const StateEntry& e : trainer.entries_to_save()) copy += e.data.numel() * size_of(DType::kFloat32);
  if (settings.recovery.from == RecoveryOptions::From::kMemory) {
    std::vector<int> machine_of;
    for (int r = 0; r < ranks; ++r) machine_of.push_back(machine_ranks > 0 ? r / machine_ranks : 0);
    plan.in_memory = std::max(plan.in_memory, MemoryRecovery::bytes_of(settings, trainer, machine_of));
    if (MemoryRecovery::saves_from_memory(settings, trainer, machine_of)) copy = 0;
  }
  plan.copy = std::max(plan.copy, copy);
  if (rank != 0) return;
  plan.stats = allocator_stats(device);
  plan.peak = memory_peak(device);
  for (const StateEntry& e : trainer.state()) {
    const int64_t bytes = e.region.shape.numel() * size_of(DType::kFloat32);
    plan.checkpoint += bytes;
    if (!e.name.starts_with(kParameters)) continue;
    const auto& frozen = settings.parallel.frozen;
    if (!frozen || !frozen(e.name.substr(kParameters.size()))) plan.gradient += bytes;
  }
}

class MachineTime final : public SimulatedTime {
 public:
  explicit MachineTime(const PlannedRates& rates) : rates_(rates) {}
  double seconds_of(const TaskCost& cost) const override {
    constexpr double kStart = 5e-6;  // of waking the threads that share a task
    // Products read and write their operands beside their multiply-adds, but seldom at the same time.
    return kStart + cost.flops * cost.per_flop / rates_.flops_s +
           static_cast<double>(cost.bytes) / rates_.memory_bytes_s;
  }

 private:
  const PlannedRates rates_;
};

}  // namespace

void make_plannable(Settings& settings) {
  settings.data.memory = 0;
  settings.verify.every = settings.verify.recompute = settings.verify.memory = 0;
  settings.graph = false;  // needs a GPU
}

bool plans_gpus(const Settings& settings) {
  const DeviceChoice choice = settings.device.choice;
  return choice == DeviceChoice::kCuda || (choice == DeviceChoice::kAuto && has_gpu_driver());
}

StepPlan plan_step(const Settings& settings, SharedData& data, int ranks, PlannedRanks planned, int machine_ranks,
                   const std::function<void(const Trainer&)>& look) {
  StepPlan plan;
  plan.level = settings.parallel.level;
  plan.group = group_of(settings, ranks);
  std::set<int> chosen{0};
  if (planned == PlannedRanks::kBusiest) {
    chosen.insert(ranks - 1);
    if (plan.level < ShardLevel::kGradients)
      chosen.insert(busiest_rank(ceil_div(settings.batch.global, settings.batch.micro), ranks, plan.group));
    // Other ranks differ by a few bytes, since shards are not of exactly equal size.
    for (int rank = 0; ranks <= 4 && rank < ranks; ++rank) chosen.insert(rank);
  }
  for (int rank : chosen) plan_rank(settings, data, rank, ranks, machine_ranks, look, plan);
  return plan;
}

StepTime time_step(const Settings& settings, SharedData& data, int ranks, int machine_ranks,
                   const PlannedRates& rates) {
  Stream stream(new_meta_device(), Stream::Mode::kInline);
  const WithStream with(stream);
  MachineTime time(rates);
  const WithSimulatedTime simulated(time);
  PlannedLinks links(rates.links);
  const auto comm = make_plan_communicator(0, ranks, machines_of(settings, machine_ranks, &links));
  Trainer trainer(settings, data.open(*comm), *comm);
  trainer.step();  // the first one also builds what later ones reuse
  const double begun = time.now_s, busy = time.busy_s;
  trainer.step();
  return {time.now_s - begun, time.busy_s - busy};
}

std::vector<Metric> try_build(const Settings& settings, const Datasets& data, int ranks) {
  Stream stream(new_meta_device(), Stream::Mode::kInline);
  const WithStream with(stream);
  const auto comm = make_plan_communicator(0, ranks);
  const Trainer trainer(settings, data, *comm);
  const Reference reference(data);  // as in a trainer, tasks of preferences read its values, too
  try_pass(settings, reference.data().train->spec(), settings.batch.micro);
  try_smallest_micro_batch(settings, *reference.data().train);
  return trainer.placed().metrics();
}

int64_t memory_of(const StepPlan& plan, bool on_cpu) {
  return device_peak(plan.stats) + (on_cpu ? plan.copy + plan.in_memory : 0);
}

}  // namespace lockstep
