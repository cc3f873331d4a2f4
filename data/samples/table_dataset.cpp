#include "data/samples/table_dataset.h"

#include "core/base/error.h"
#include "data/samples/sample_parts.h"
#include "data/samples/sample_target.h"

namespace lockstep {

TableDataset::TableDataset(std::shared_ptr<const DatasetFile> file, IndexRange part)
    : file_(std::move(file)), part_(part) {
  const DatasetHeader& h = file_->header;
  check(part.begin >= 0 && part.end <= h.images[0] && !part.empty(), "rows [", part.begin, ", ", part.end, ") of ",
        h.images[0]);
  spec_ = spec_of(*file_, part, {"features", DType::kFloat32, {static_cast<int64_t>(h.mean.size())}}, "rows");
  for (size_t c = 0; c < h.mean.size(); ++c) centres_.push_back(h.centre(c));
}

void TableDataset::read(int64_t, int64_t index, SampleMemory sample) const {
  check(index >= 0 && index < part_.size(), "sample ", index, " of ", part_.size());
  const int64_t row = part_.begin + index;
  const DatasetHeader& h = file_->header;
  float* out = static_cast<float*>(sample[0]);
  file_->rows->visit({row, row + 1}, [&](IndexRange, const uint8_t* bytes) {
    const float* values = reinterpret_cast<const float*>(bytes);
    const std::vector<int64_t>& stored = file_->feature_of;
    for (size_t c = 0; c < h.mean.size(); ++c) {
      const int64_t at = stored.empty() ? static_cast<int64_t>(c) : stored[c];
      out[c] = static_cast<float>(((at < 0 ? 0 : values[at]) - centres_[c]) / h.stddev[c]);
    }
  });
  sample_target(h.target).write(*file_, row, sample[1]);
  write_weight(*file_, row, sample);
}

std::optional<double> TableDataset::target_number(int64_t, int64_t index) const {
  return sample_target(file_->header.target).number(*file_, part_.begin + index);
}

}  // namespace lockstep
