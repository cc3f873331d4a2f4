#include "data/image_dataset.h"

#include "core/base/error.h"

namespace lockstep {

ImageDataset::ImageDataset(std::shared_ptr<const DatasetFile> file, Range part) : file_(std::move(file)), part_(part) {
  const DatasetHeader& h = file_->header;
  check(part.begin >= 0 && part.end <= h.images[0] && !part.empty(), "images [", part.begin, ", ", part.end, ") of ",
        h.images[0]);
  spec_ = {DataKind::kImages, DType::kFloat32, {h.images[1], h.images[2], h.images[3]}, {}, h.classes};
  for (size_t c = 0; c < h.mean.size(); ++c)
    for (int byte = 0; byte < 256; ++byte)
      normalised_.push_back(static_cast<float>((byte / 255.0 - h.mean[c]) / h.stddev[c]));
}

void ImageDataset::get(int64_t, int64_t index, void* input, int32_t* target) const {
  check(index >= 0 && index < part_.size(), "sample ", index, " of ", part_.size());
  int64_t row = part_.begin + index, channels = spec_.input_shape[2];
  float* out = static_cast<float*>(input);
  file_->rows->visit({row, row + 1}, [&](Range, const uint8_t* bytes) {
    int64_t values = spec_.input_shape.numel();
    for (int64_t c = 0; c < channels; ++c) {
      const float* of = normalised_.data() + c * 256;
      for (int64_t i = c; i < values; i += channels) out[i] = of[bytes[i]];
    }
  });
  *target = file_->labels[static_cast<size_t>(row)];
}

}  // namespace lockstep
