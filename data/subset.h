// Subset: some samples of a dataset, evenly spread over it: the same ones for all who ask. Borrows the dataset.
#pragma once

#include "core/base/error.h"
#include "data/dataset.h"

namespace lockstep {

class Subset final : public Dataset {
 public:
  // `count` in [1, data.size()].
  Subset(const Dataset& data, int64_t count) : data_(data), count_(count) {
    check(count > 0 && count <= data.size(), count, " of ", data.size(), " samples");
  }
  int64_t size() const override { return count_; }
  const DataSpec& spec() const override { return data_.spec(); }
  Hash128 identity() const override { return data_.identity(); }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override {
    // index * size / count, without a product that could overflow.
    const int64_t whole = data_.size() / count_, rest = data_.size() % count_;
    data_.read(epoch, index * whole + index * rest / count_, sample);
  }
  const Vocabulary* vocabulary() const override { return data_.vocabulary(); }

 private:
  const Dataset& data_;
  int64_t count_;
};

}  // namespace lockstep
