// Loader: builds a rank's share of each step's batch as tensors, on threads that work ahead of the training loop. Owned
// by the training or evaluation loop; borrows its dataset. Batches belong to the caller.
//
// The content of a step is a pure function of (dataset, seed, cursor, batch sizes). Threads, prefetch and the number of
// ranks change neither a sample nor its position; they only determine which rank gets which micro-batches. The shape of
// a micro-batch is a function of its samples (DataSpec::length_buckets).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/partition.h"
#include "core/tensor/tensor.h"
#include "data/samples/dataset.h"

namespace lockstep {

// The data position of a run: `position` samples of `epoch` are done. Part of a checkpoint.
struct Cursor {
  int64_t epoch = 0, position = 0;
  friend bool operator==(const Cursor&, const Cursor&) = default;
};

struct MicroBatch {
  int64_t index = 0;  // among the step's micro_count
  // The dataset index of each row's sample, the same in every epoch; it keys the sample's random numbers.
  std::shared_ptr<const std::vector<int64_t>> samples;
  Batch batch;  // the dataset's tensors, [rows, shape...]
  // Labels that are not kIgnoreIndex; rows where there are no labels. Of samples with weights (kSampleWeights) the sum
  // of these, added in the order of the rows, each as often as the sample has targets.
  double targets = 0;
};

struct StepBatch {
  int64_t epoch = 0, position = 0;  // of the step's first sample
  int64_t samples = 0;              // over all ranks
  int64_t micro_count = 0;          // over all ranks: ceil(samples / batch.micro)
  std::vector<MicroBatch> mine;     // this rank's micro-batches in the order in which it runs them; may be empty
  double targets = 0;               // in `mine`
  int64_t units = 0;                // DataSpec::units of all samples, over all ranks, with their padding
  Cursor next;                      // the position after this step
};

struct LoaderOptions {
  int64_t batch_global = 1;  // samples per step; the last step of an epoch has the remainder
  int64_t batch_micro = 1;   // samples per micro-batch; the last one of a step has the remainder
  int64_t pool = 1;          // steps; see SampleOrder
  uint64_t seed = 0;         // of the sample order
  bool shuffle = true;
  MicroSchedule schedule = MicroSchedule::kLocal;
  int rank = 0, size = 1;
  int threads = 1;   // 0: next() builds the batch itself
  int prefetch = 2;  // steps built ahead at most; bounds the memory
  Cursor start = {};
  int64_t only = -1;       // builds no other micro-batches than the one with this index; -1: those of `rank`
  bool one_epoch = false;  // an evaluation pass: ends with the epoch of `start`; batch_global may exceed the dataset
};

class Loader {
 public:
  // Throws ExitCode::kConfig for batch sizes that are not possible. `dataset` must outlive the loader. Tensors are
  // allocated on the device that is current at construction; if that device has no bytes (`lockstep plan`), no sample
  // is read and every target is counted. A step for a GPU is copied from pinned memory on the loader's own stream,
  // concurrently with the work of the previous step.
  Loader(const Dataset& dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next step's share, for use on the current stream; blocks until it is built. Rethrows an error of building it,
  // also in all later calls.
  StepBatch next();
  bool done() const;                // with one_epoch: the pass is complete
  int64_t steps_per_epoch() const;  // in a whole epoch

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
