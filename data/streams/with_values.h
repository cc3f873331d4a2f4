// WithValues: a dataset whose samples have one more tensor, whose values become known later. Shares the dataset.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "data/samples/dataset.h"

namespace lockstep {

class WithValues final : public Dataset {
 public:
  // `tensor`: fp32, the same in every epoch.
  WithValues(std::shared_ptr<const Dataset> base, TensorSpec tensor) : base_(std::move(base)), spec_(base_->spec()) {
    check(tensor.dtype == DType::kFloat32, "values of the type ", to_text(tensor.dtype));
    width_ = tensor.shape.numel();
    spec_.tensors.push_back(std::move(tensor));
  }
  const Dataset& base() const { return *base_; }
  // Of all samples, in the order of their numbers (Dataset::number); not while anybody reads. Until then all are NaN.
  void set(std::vector<float> values) {
    check(std::ssize(values) == size() * width_, values.size(), " values of ", size(), " samples");
    values_ = std::move(values);
  }
  bool is_set() const { return !values_.empty(); }
  const std::vector<float>& values() const { return values_; }

  int64_t size() const override { return base_->size(); }
  const DataSpec& spec() const override { return spec_; }
  int64_t length(int64_t epoch, int64_t index) const override { return base_->length(epoch, index); }
  int64_t number(int64_t epoch, int64_t index) const override { return base_->number(epoch, index); }
  Hash128 identity() const override { return base_->identity(); }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override {
    base_->read(epoch, index, sample.first(sample.size() - 1));
    auto* out = static_cast<float*>(sample.back());
    if (!is_set()) std::fill_n(out, width_, std::numeric_limits<float>::quiet_NaN());
    else std::copy_n(values_.begin() + number(epoch, index) * width_, width_, out);
  }
  const Vocabulary* vocabulary() const override { return base_->vocabulary(); }
  std::optional<double> target_number(int64_t epoch, int64_t index) const override {
    return base_->target_number(epoch, index);
  }

 private:
  std::shared_ptr<const Dataset> base_;
  DataSpec spec_;
  int64_t width_ = 1;
  std::vector<float> values_;
};

}  // namespace lockstep
