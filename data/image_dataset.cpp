#include "data/image_dataset.h"

#include "core/base/error.h"

namespace lockstep {

DataSpec image_spec(const Shape& shape, int64_t classes) {
  return {{{"images", DType::kFloat32, shape}, {std::string(kLabels), DType::kInt32, {}}}, classes, "images", 1, false};
}

ImageDataset::ImageDataset(std::shared_ptr<const DatasetFile> file, Range part, const DataOptions::Image& size,
                           const Augmentation& augmentation)
    : file_(std::move(file)), part_(part), augmentation_(augmentation) {
  const DatasetHeader& h = file_->header;
  check(part.begin >= 0 && part.end <= h.images[0] && !part.empty(), "images [", part.begin, ", ", part.end, ") of ",
        h.images[0]);
  require(!h.encoded || (size.height > 0 && size.width > 0), ExitCode::kConfig,
          "data.image.height and data.image.width are not set, but ", file_->path,
          " holds images of mixed sizes: give the size that they are to have");
  const int64_t height = size.height > 0 ? size.height : h.images[1];
  const int64_t width = size.width > 0 ? size.width : h.images[2];
  spec_ = image_spec({height, width, h.images[3]}, h.classes);
  for (size_t c = 0; c < h.mean.size(); ++c)
    for (int byte = 0; byte < 256; ++byte)
      normalised_.push_back(static_cast<float>((byte / 255.0 - h.mean[c]) / h.stddev[c]));
}

void ImageDataset::read(int64_t epoch, int64_t index, SampleMemory sample) const {
  check(index >= 0 && index < part_.size(), "sample ", index, " of ", part_.size());
  const int64_t row = part_.begin + index;
  const Shape& shape = spec_.input().shape;
  const int64_t height = shape[0], width = shape[1], channels = shape[2], values = shape.numel();
  float* out = static_cast<float*>(sample[0]);
  const auto normalise = [&](const uint8_t* bytes) {
    for (int64_t c = 0; c < channels; ++c) {
      const float* of = normalised_.data() + c * 256;
      for (int64_t i = c; i < values; i += channels) out[i] = of[bytes[i]];
    }
  };
  file_->visit_image(row, [&](const uint8_t* pixels, int64_t image_height, int64_t image_width) {
    const Box box = augmentation_.box(image_height, image_width, height, width, epoch, index);
    const bool whole = box.left == 0 && box.top == 0 && box.right == width && box.bottom == height &&
                       image_height == height && image_width == width;
    if (whole && !augmentation_.changes()) return normalise(pixels);
    ByteImage image = resize(pixels, image_height, image_width, channels, box, height, width);
    augmentation_.apply(image, epoch, index);
    normalise(image.bytes.data());
  });
  *static_cast<int32_t*>(sample[1]) = file_->labels[static_cast<size_t>(row)];
}

}  // namespace lockstep
