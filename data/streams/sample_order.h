// SampleOrder: which samples are at the positions of an epoch. Borrows its dataset. A pure function of (dataset, seed,
// epoch, samples per step, position); callable from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/partition.h"
#include "data/samples/dataset.h"

namespace lockstep {

struct OrderOptions {
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t step = 1;    // samples per step
  int64_t pool = 1;    // steps, of data with buckets
  bool whole = false;  // an evaluation pass, whose order does not depend on `step`
};

// The order is a Sampler's. With buckets (DataSpec::length_buckets) it is cut into pools of `pool` steps: the samples
// of a pool are sorted by the length to which they are padded, each step of it takes as many as it has, in a row, and
// the steps come in an order that a Sampler draws. With pools of one step a step has the samples that it has without
// buckets. Of an evaluation pass all samples are one pool.
class SampleOrder {
 public:
  SampleOrder(const Dataset& data, const OrderOptions& options);
  // The samples at positions of an epoch.
  std::vector<int64_t> operator()(int64_t epoch, IndexRange positions) const;

 private:
  struct Pool {
    int64_t epoch = 0, number = 0;
    std::vector<int64_t> samples;
  };
  std::shared_ptr<const Pool> pool(int64_t epoch, int64_t number) const;
  Pool sorted(int64_t epoch, int64_t number) const;

  const Dataset& data_;
  const OrderOptions options_;
  const int64_t size_, pool_size_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Pool> last_;  // that was asked for
};

}  // namespace lockstep
