// ImageDataset: samples of an image, fp32 [height, width, channels], normalised per channel, and its label, number, or
// the labels of its pixels, [height, width]. The training and the validation dataset share one file.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/partition.h"
#include "data/images/augment.h"
#include "data/samples/data_options.h"
#include "data/samples/dataset.h"
#include "data/samples/dataset_file.h"

namespace lockstep {

class ImageDataset final : public Dataset {
 public:
  // `part` of the file's images, cropped and resized to `size` and changed by `augmentation`. Throws
  // ExitCode::kConfig where `size` is needed or not possible.
  ImageDataset(std::shared_ptr<const DatasetFile> file, IndexRange part, const DataOptions::Image& size = {},
               const Augmentation& augmentation = {});
  int64_t size() const override { return part_.size(); }
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return file_->header.identity; }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override;
  const Vocabulary* vocabulary() const override { return nullptr; }
  std::optional<double> target_number(int64_t epoch, int64_t index) const override;

 private:
  void write_labels(const uint8_t* mask, int32_t* labels) const;

  std::shared_ptr<const DatasetFile> file_;
  IndexRange part_;
  Augmentation augmentation_;
  DataSpec spec_;
  std::vector<float> normalised_;  // [channels, 256]: (byte / 255 - mean) / std, rounded once from fp64
};

}  // namespace lockstep
