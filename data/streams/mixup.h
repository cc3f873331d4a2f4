// Mixup: samples that are mixtures of two, for training. Zhang et al., "mixup: Beyond Empirical Risk Minimization"
// (2018). Shares its dataset. A sample is a pure function of seed, epoch and index, as of every dataset.
#pragma once

#include <cstdint>
#include <memory>

#include "data/samples/dataset.h"

namespace lockstep {

// A sample's first tensor is (1 - share) of its own and share of another sample's, which is drawn from all of the
// epoch's, and share from the distribution Beta(alpha, alpha). "labels" are its own; "other_labels" and "other_share"
// are what a loss needs of the other. Numbers ("targets") are mixed as the first tensor is.
class Mixup final : public Dataset {
 public:
  // `alpha` in (0, kMostMixup] (data/images/augment.h). Throws ExitCode::kConfig for samples that have no first tensor
  // of floating point, or neither one label nor one number.
  Mixup(std::shared_ptr<const Dataset> data, double alpha, uint64_t seed);
  int64_t size() const override { return data_->size(); }
  const DataSpec& spec() const override { return spec_; }
  int64_t number(int64_t epoch, int64_t index) const override { return data_->number(epoch, index); }
  Hash128 identity() const override { return data_->identity(); }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override;
  const Vocabulary* vocabulary() const override { return data_->vocabulary(); }

 private:
  std::shared_ptr<const Dataset> data_;
  double alpha_;
  uint64_t seed_;
  DataSpec spec_;
};

}  // namespace lockstep
