// Unlabelled: the samples of a dataset as they are predicted, for which their targets do not matter: a run finds the
// inputs, and targets of the kind that it was trained on, which are all 0. Shares the dataset.
#pragma once

#include <memory>
#include <vector>

#include "data/samples/dataset.h"
#include "data/samples/schema.h"

namespace lockstep {

class Unlabelled final : public Dataset {
 public:
  // `like`: what the run was trained on; one of text without labels keeps the samples as they are.
  Unlabelled(std::shared_ptr<const Dataset> inputs, const DataSchema& like);
  int64_t size() const override { return inputs_->size(); }
  const DataSpec& spec() const override { return spec_; }
  int64_t length(int64_t epoch, int64_t index) const override { return inputs_->length(epoch, index); }
  Hash128 identity() const override { return inputs_->identity(); }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override;
  const Vocabulary* vocabulary() const override { return inputs_->vocabulary(); }

 private:
  std::shared_ptr<const Dataset> inputs_;
  DataSpec spec_;
  std::vector<int> from_;  // of each tensor of inputs_: which of ours it is, -1 for a target
};

}  // namespace lockstep
