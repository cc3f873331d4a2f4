// Evaluation: the loss of a model over a dataset, and the accuracy of a classifier. Plain values and a function.
#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "core/models/model.h"
#include "data/loader.h"
#include "sharding/data_parallel.h"

namespace lockstep {

struct EvalReport {
  double loss = 0;       // mean over targets
  double accuracy = -1;  // part of the targets that were the likeliest; negative where the model is no classifier
  int64_t targets = 0;
};

struct EvalOptions {
  int64_t micro_batch = 1;  // samples
  int loader_threads = 1;
  DType compute = DType::kFloat32;  // of floating-point inputs
  uint64_t seed = 1;                // with `step`, the key of random numbers that forward() may draw
  int64_t step = 0;
};

// Runs every sample of `data` once, in order, without gradients; the ranks share the micro-batches. The same bits at
// every number of ranks. Collective, outside of steps.
EvalReport evaluate(Model& model, DataParallel& parallel, Communicator& comm, const Dataset& data,
                    const EvalOptions& options);

// A micro-batch's input as the model reads it: floating-point values in the type that it computes in.
Tensor input_of(const MicroBatch& batch, DType compute);

}  // namespace lockstep
