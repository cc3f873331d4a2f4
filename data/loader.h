// The loader: a rank's share of each step, as tensors, built ahead by threads.
// Owned by the training or evaluation loop; borrows its dataset. Batches are the caller's.
//
// What a step holds is a pure function of (dataset, seed, cursor, batch sizes): neither threads, nor prefetch, nor
// the number of ranks change any sample or its place; ranks only share out the micro-batches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/partition.h"
#include "core/tensor/tensor.h"
#include "data/dataset.h"

namespace lockstep {

// Where a run stands in its data: `position` samples of `epoch` are done. Part of a checkpoint.
struct Cursor {
  int64_t epoch = 0, position = 0;
  friend bool operator==(const Cursor&, const Cursor&) = default;
};

struct MicroBatch {
  int64_t index = 0;  // among the step's micro_count
  // Each row's sample: an index into the dataset, the same in every epoch; the key of its random numbers.
  std::shared_ptr<const std::vector<int64_t>> samples;
  Batch batch;          // the dataset's tensors, [rows, shape...]
  int64_t targets = 0;  // labels that are not kIgnoreIndex; rows where there are no labels
};

struct StepBatch {
  int64_t epoch = 0, position = 0;  // of the step's first sample
  int64_t samples = 0;              // of all ranks
  int64_t micro_count = 0;          // of all ranks: ceil(samples / batch.micro)
  std::vector<MicroBatch> mine;     // this rank's, in the order in which it runs them; may be empty
  int64_t targets = 0;              // of mine
  Cursor next;                      // once this step is done
};

struct LoaderOptions {
  int64_t batch_global = 1;  // samples a step; the last step of an epoch has what is left
  int64_t batch_micro = 1;   // samples a micro-batch; the last one of a step has what is left
  uint64_t seed = 0;         // of the order
  bool shuffle = true;
  MicroSchedule schedule = MicroSchedule::kLocal;
  int rank = 0, size = 1;
  int threads = 1;   // 0: next() builds the batch itself
  int prefetch = 2;  // steps built ahead at most: the bound on memory
  Cursor start = {};
  bool one_epoch = false;  // an evaluation pass: ends with the start's epoch; the batch may exceed the dataset
};

class Loader {
 public:
  // Throws ExitCode::kConfig for impossible batch sizes. `dataset` must outlive the loader. Tensors are made on the
  // device that is current here; where it has no bytes, no sample is read and every target counts. To a GPU a step is
  // copied from pinned memory by a stream of the loader's own, beside the work of the step before.
  Loader(const Dataset& dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next step's share, for the current stream; waits for it. Rethrows what building it threw, then and ever after.
  StepBatch next();
  bool done() const;                // one_epoch only: the pass is over
  int64_t steps_per_epoch() const;  // of a whole epoch

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
