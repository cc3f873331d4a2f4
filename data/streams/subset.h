// Subset: some samples of a dataset, evenly spread over it: the same ones for all who ask. Borrows the dataset.
#pragma once

#include "core/base/error.h"
#include "data/samples/dataset.h"

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
    data_.read(epoch, of_all(index), sample);
  }
  int64_t length(int64_t epoch, int64_t index) const override { return data_.length(epoch, of_all(index)); }
  int64_t number(int64_t epoch, int64_t index) const override { return data_.number(epoch, of_all(index)); }
  const Vocabulary* vocabulary() const override { return data_.vocabulary(); }
  std::optional<double> target_number(int64_t epoch, int64_t index) const override {
    return data_.target_number(epoch, of_all(index));
  }

 private:
  // index * size / count, without a product that could overflow.
  int64_t of_all(int64_t index) const {
    const int64_t whole = data_.size() / count_, rest = data_.size() % count_;
    return index * whole + index * rest / count_;
  }

  const Dataset& data_;
  int64_t count_;
};

}  // namespace lockstep
