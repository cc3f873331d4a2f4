// Evaluation: the loss of a task over a dataset, and metrics. Plain values and functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/metrics/metric.h"
#include "core/tasks/task.h"
#include "data/streams/loader.h"
#include "sharding/data_parallel.h"

namespace lockstep {

struct EvalReport {
  double loss = 0;  // mean over targets
  int64_t targets = 0;
  std::vector<std::pair<std::string, double>> metrics;  // those that apply, in the order of the options
  Confusion confusion;  // of the last metric that counts predictions; empty where there is none
  std::string warning;  // where all predictions are of one class though the labels have several; else empty
};

struct EvalOptions {
  int64_t micro_batch = 1;   // samples
  int64_t global_batch = 1;  // of a GlobalBatchTask: samples that a loss is over
  int loader_threads = 1;
  DType compute = DType::kFloat32;  // of floating-point tensors
  uint64_t seed = 1;                // with `step`, the key of random numbers that forward() may draw
  int64_t step = 0;
  std::vector<Metric> metrics = {};
};

// Runs every sample of `data` once, in order, without gradients; the ranks of the data axis share the micro-batches.
// The same bits at every number of ranks. Of a GlobalBatchTask, each `global_batch` samples in order are a global
// batch, and metrics get its outputs with an empty batch. Collective, outside of steps.
EvalReport evaluate(Task& task, DataParallel& parallel, const Dataset& data, const EvalOptions& options);

// A batch as the model reads it: floating-point tensors, but not "targets", in the type that it computes in.
Batch as_computed(const Batch& batch, DType compute);

}  // namespace lockstep
