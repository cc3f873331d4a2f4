// TableDataset: samples of the features of a table's row, fp32 [features], normalised, and its label or the number that
// is its target. The training and the validation dataset share one file.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/partition.h"
#include "data/samples/dataset.h"
#include "data/samples/dataset_file.h"

namespace lockstep {

class TableDataset final : public Dataset {
 public:
  TableDataset(std::shared_ptr<const DatasetFile> file, IndexRange part);
  int64_t size() const override { return part_.size(); }
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return file_->header.identity; }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override;
  const Vocabulary* vocabulary() const override { return nullptr; }
  std::optional<double> target_number(int64_t epoch, int64_t index) const override;

 private:
  std::shared_ptr<const DatasetFile> file_;
  IndexRange part_;
  std::vector<double> centres_;  // of the features: DatasetHeader::centre
  DataSpec spec_;
};

}  // namespace lockstep
