// Evaluation: the loss of a model over a dataset, and metrics. Plain values and functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/models/model.h"
#include "core/nn/metric.h"
#include "data/streams/loader.h"
#include "sharding/data_parallel.h"

namespace lockstep {

struct EvalReport {
  double loss = 0;  // mean over targets
  int64_t targets = 0;
  std::vector<std::pair<std::string, double>> metrics;  // those that apply to the model, in the order of the options
  std::string warning;  // where all predictions are of one class though the labels have several; else empty
};

struct EvalOptions {
  int64_t micro_batch = 1;  // samples
  int loader_threads = 1;
  DType compute = DType::kFloat32;  // of floating-point tensors
  uint64_t seed = 1;                // with `step`, the key of random numbers that forward() may draw
  int64_t step = 0;
  std::vector<Metric> metrics = {};
};

// Those of `metrics` that data of this kind has: without the ones of labels, and with rmse(), where numbers are
// predicted.
std::vector<Metric> metrics_of(std::vector<Metric> metrics, const DataSpec& spec);

// Runs every sample of `data` once, in order, without gradients; the ranks of the data axis share the micro-batches.
// The same bits at every number of ranks. Collective, outside of steps.
EvalReport evaluate(Model& model, DataParallel& parallel, const Dataset& data, const EvalOptions& options);

// A batch as the model reads it: floating-point tensors, but not "targets", in the type that it computes in.
Batch as_computed(const Batch& batch, DType compute);

}  // namespace lockstep
