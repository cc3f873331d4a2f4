// The memory and traffic of training steps, planned by executing them on a device that counts bytes and computes
// nothing: any number of ranks in one process, without their memory. Plain functions.
#pragma once

#include <cstdint>
#include <functional>

#include "comm/plan/plan_comm.h"
#include "core/device/allocator.h"
#include "core/device/memory_peak.h"
#include "launch/training/step/shared_data.h"
#include "launch/training/step/trainer.h"

namespace lockstep {

struct StepPlan {
  ShardLevel level = ShardLevel::kNone;
  int group = 1;         // ranks that share one copy of the state
  AllocatorStats stats;  // of rank 0
  MemoryPeak peak;       // of rank 0
  int64_t wire = 0;      // the most bytes that a planned rank sends in a step
  int64_t copy = 0;      // the most bytes that a planned rank saves; a copy stays in host memory from the first save on
  int64_t in_memory = 0;   // the most bytes of host memory that a planned rank writes with recovery.from: memory
  int64_t checkpoint = 0;  // bytes of the tensors of a whole checkpoint
  int64_t gradient = 0;    // bytes of the gradients of all parameters once, in fp32
};

// kFirst: rank 0 alone, whose memory is within a few bytes that of every rank. kBusiest: also those that send and save
// the most.
enum class PlannedRanks { kFirst, kBusiest };

// Takes out of `settings` what a plan cannot execute and what does not change its result, before SharedData opens the
// data: only the data's shapes are needed, and there are no replicas to compare.
void make_plannable(Settings& settings);

// Is a plan of `settings` one of GPUs, which exchange by NCCL? Where the key `device` is auto: has this machine a GPU?
bool plans_gpus(const Settings& settings);

// What a step takes on machines that are described by a few numbers.
struct PlannedRates {
  double flops_s = 0;         // of a rank's products
  double memory_bytes_s = 0;  // that a rank reads and writes in large tensors
  PlannedLinks::Rates links;
};
struct StepTime {
  double step_s = 0, compute_s = 0;  // the rest of a step is waits for other ranks
  double efficiency() const { return compute_s / step_s; }
};

// The plan of `settings` on `ranks` ranks, `machine_ranks` of them on each machine (0: all), at
// settings.parallel.level, in groups of settings.parallel.group ranks (0: of all). Throws what a run would where model,
// data and options do not fit together, ExitCode::kConfig for most of it. `look` is called with the trainer of each
// planned rank, whose tensors have no bytes, before its first step.
StepPlan plan_step(const Settings& settings, SharedData& data, int ranks, PlannedRanks planned, int machine_ranks = 0,
                   const std::function<void(const Trainer&)>& look = {});

// The time of rank 0's second step, by the same code with simulated time (core/device/simulated_time.h): a task takes
// its operations or its bytes, whichever is longer, and exchanges share the links of a machine. Not counted: loading of
// data, and ranks that are slower than others.
StepTime time_step(const Settings& settings, SharedData& data, int ranks, int machine_ranks, const PlannedRates& rates);

// Builds what rank 0 of such a run has, on a device without bytes, and lets a micro-batch pass through the model.
// Throws what a run would where model, data and options do not fit together. `settings` and data as for plan_step.
// Returns what evaluations of it measure.
std::vector<Metric> try_build(const Settings& settings, const Datasets& data, int ranks);

// The part of a memory that a plan may take: the rest is for what it does not count, which is scratch memory of
// kernels, and what the system or a GPU's driver takes.
constexpr double kPlannedShare = 0.9;
inline bool fits_with_margin(int64_t needed, int64_t there) {
  return static_cast<double>(needed) <= kPlannedShare * static_cast<double>(there);
}

// The memory of a rank in bytes. `on_cpu`: the copy for checkpoints takes the same memory.
int64_t memory_of(const StepPlan& plan, bool on_cpu);

}  // namespace lockstep
