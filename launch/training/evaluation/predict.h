// Predictions: what a task's model says of each sample of a dataset. Plain values and functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/tasks/task.h"
#include "launch/training/evaluation/evaluate.h"
#include "sharding/data_parallel.h"

namespace lockstep {

// What is kept of the outputs for a micro-batch's samples: bytes, one sample behind the other.
using EncodeOutput = std::function<std::string(const Tensor& output, const Batch& batch)>;

// Some samples of the dataset that follow each other.
struct PredictedSamples {
  int64_t first = 0, count = 0;
  std::string_view bytes;  // of EncodeOutput
};

// Runs every sample of `data` once, in order, without gradients; the ranks of the data axis share the micro-batches of
// options.micro_batch samples. `use` is called on the first of these ranks, in the order of the samples, which is then
// the same at every number of ranks. Collective, outside of steps.
void predict(Task& task, DataParallel& parallel, const Dataset& data, const EvalOptions& options,
             const EncodeOutput& encode, const std::function<void(const PredictedSamples&)>& use);

}  // namespace lockstep
