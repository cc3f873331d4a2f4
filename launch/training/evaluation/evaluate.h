// Evaluation: the loss of a task over a dataset, and metrics. Plain values and functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/metrics/metric.h"
#include "core/tasks/task.h"
#include "data/streams/loader.h"
#include "sharding/data_parallel.h"

namespace lockstep {

struct EvalReport {
  double loss = 0;                                      // mean over targets
  double targets = 0;                                   // that counted; of samples with weights the sum of these
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

// The pass over data that evaluations and predictions share: every sample of `data` once, in order, `batch_global` a
// step, without gradients and with the model in evaluation mode. `phase`: for reports of where ranks are. Collective.
void for_each_step(Task& task, DataParallel& parallel, const Dataset& data, const EvalOptions& options,
                   int64_t batch_global, const char* phase, const std::function<void(const StepBatch&)>& use);
// As many samples as make four micro-batches a rank.
int64_t samples_of_pass(const DataParallel& parallel, const EvalOptions& options);
// Calls `use` with the task's output for each of this rank's micro-batches of the step; `first`: the index in the data
// of its first sample. Collective.
using UseOutput = std::function<void(const Tensor& output, const Batch& batch, const MicroBatch& micro, int64_t first)>;
void for_each_output(Task& task, DataParallel& parallel, const StepBatch& step, const EvalOptions& options,
                     const UseOutput& use);

// The rows of all ranks, of `width` values each, sorted: the same on every rank, whoever brought which. Collective.
std::vector<std::vector<double>> rows_of_all_ranks(const Axis& ranks, const std::vector<std::vector<double>>& mine,
                                                   size_t width);

// A batch as the model reads it: floating-point tensors, but not "targets", "sample_weights" and "reference", in the
// type that it computes in.
Batch as_computed(const Batch& batch, DType compute);

}  // namespace lockstep
