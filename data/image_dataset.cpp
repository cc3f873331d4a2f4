#include "data/image_dataset.h"

#include "core/base/error.h"

namespace lockstep {

DataSpec image_spec(const Shape& shape, int64_t classes) {
  return {{{"images", DType::kFloat32, shape}, {std::string(kLabels), DType::kInt32, {}}}, classes, "images", 1, false};
}

ImageDataset::ImageDataset(std::shared_ptr<const DatasetFile> file, Range part) : file_(std::move(file)), part_(part) {
  const DatasetHeader& h = file_->header;
  check(part.begin >= 0 && part.end <= h.images[0] && !part.empty(), "images [", part.begin, ", ", part.end, ") of ",
        h.images[0]);
  spec_ = image_spec({h.images[1], h.images[2], h.images[3]}, h.classes);
  for (size_t c = 0; c < h.mean.size(); ++c)
    for (int byte = 0; byte < 256; ++byte)
      normalised_.push_back(static_cast<float>((byte / 255.0 - h.mean[c]) / h.stddev[c]));
}

void ImageDataset::read(int64_t, int64_t index, SampleMemory sample) const {
  check(index >= 0 && index < part_.size(), "sample ", index, " of ", part_.size());
  int64_t row = part_.begin + index, channels = spec_.input().shape[2];
  float* out = static_cast<float*>(sample[0]);
  file_->rows->visit({row, row + 1}, [&](Range, const uint8_t* bytes) {
    int64_t values = spec_.input().shape.numel();
    for (int64_t c = 0; c < channels; ++c) {
      const float* of = normalised_.data() + c * 256;
      for (int64_t i = c; i < values; i += channels) out[i] = of[bytes[i]];
    }
  });
  *static_cast<int32_t*>(sample[1]) = file_->labels[static_cast<size_t>(row)];
}

}  // namespace lockstep
