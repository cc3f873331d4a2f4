#include "data/samples/image_dataset.h"

#include "core/base/error.h"
#include "data/samples/sample_parts.h"
#include "data/samples/sample_target.h"

namespace lockstep {

ImageDataset::ImageDataset(std::shared_ptr<const DatasetFile> file, IndexRange part, const DataOptions::Image& size,
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
  spec_ = spec_of(*file_, part, {"images", DType::kFloat32, {height, width, h.images[3]}}, "images");
  for (size_t c = 0; c < h.mean.size(); ++c)
    for (int byte = 0; byte < 256; ++byte)
      normalised_.push_back(static_cast<float>((byte / 255.0 - h.mean[c]) / h.stddev[c]));
}

std::optional<double> ImageDataset::target_number(int64_t, int64_t index) const {
  return sample_target(file_->header.target).number(*file_, part_.begin + index);
}

void ImageDataset::read(int64_t epoch, int64_t index, SampleMemory sample) const {
  check(index >= 0 && index < part_.size(), "sample ", index, " of ", part_.size());
  const int64_t row = part_.begin + index;
  const Shape& shape = spec_.input().shape;
  const int64_t height = shape[0], width = shape[1], channels = shape[2], values = shape.numel();
  float* out = static_cast<float*>(sample[0]);
  const auto normalise = [&](const uint8_t* bytes) {
    for (int64_t i = 0; i < values; i += channels)
      for (int64_t c = 0; c < channels; ++c) out[i + c] = normalised_[static_cast<size_t>(c * 256 + bytes[i + c])];
  };
  int32_t* labels = sample.size() > 1 ? static_cast<int32_t*>(sample[1]) : nullptr;
  const bool masks = file_->masks != nullptr;
  if (!masks) sample_target(file_->header.target).write(*file_, row, labels);
  write_weight(*file_, row, sample);
  file_->visit_image(row, [&](const uint8_t* pixels, int64_t image_height, int64_t image_width) {
    const std::vector<uint8_t> classes = masks ? file_->mask(row, image_height, image_width) : std::vector<uint8_t>();
    const PixelBox box = augmentation_.box(image_height, image_width, height, width, epoch, index);
    const bool whole = box.left == 0 && box.top == 0 && box.right == width && box.bottom == height &&
                       image_height == height && image_width == width;
    if (whole && !augmentation_.changes()) {
      normalise(pixels);
      return write_labels(classes.data(), labels);
    }
    ByteImage image = resize(pixels, image_height, image_width, channels, box, height, width), mask;
    if (masks) mask = resize_nearest(classes.data(), image_height, image_width, 1, box, height, width);
    augmentation_.apply(image, epoch, index, masks ? &mask : nullptr);
    normalise(image.bytes.data());
    write_labels(mask.bytes.data(), labels);
  });
}

// Nothing where each image has one label.
void ImageDataset::write_labels(const uint8_t* mask, int32_t* labels) const {
  if (!file_->masks) return;
  for (int64_t i = 0, ignored = file_->header.ignored; i < spec_.targets(); ++i)
    labels[i] = mask[i] == ignored || mask[i] == Augmentation::kOutside ? kIgnoreIndex : mask[i];
}

}  // namespace lockstep
