// Augmentation: random changes of training images, made on their bytes before they are normalised. An image is changed
// by a pure function of (seed, epoch, sample index) in integer arithmetic, so that neither ranks, threads nor a resume
// change a bit of it. A plain value.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/field.h"
#include "data/images/resize.h"

namespace lockstep {

constexpr double kMostMixup = 4;  // of AugmentOptions::mixup: drawing takes longer the larger it is

// Keys of `data.augment`. At its default each does nothing. They apply in this order.
struct AugmentOptions {
  double crop_area = 1;
  double flip = 0;
  int64_t shift = 0;
  double rotate = 0;
  double brightness = 0, contrast = 0, saturation = 0;
  int64_t cutout = 0;
  double mixup = 0;  // data/streams/mixup.h; by no Augmentation, as it takes two samples
};
std::vector<Field> fields(AugmentOptions& options);

class Augmentation {
 public:
  Augmentation() = default;  // changes nothing
  Augmentation(const AugmentOptions& options, uint64_t seed) : options_(options), seed_(seed) {}

  // The part of an image of this size that the sample sees, which is to be resized to height x width: without
  // crop_area the largest in its middle.
  PixelBox box(int64_t image_height, int64_t image_width, int64_t height, int64_t width, int64_t epoch,
               int64_t index) const;
  // Whether apply() may change an image.
  bool changes() const;
  // All but crop_area, in place. `mask`: [height, width, 1], moved as the image is, by the nearest pixel; kOutside
  // where it has none.
  void apply(ByteImage& image, int64_t epoch, int64_t index, ByteImage* mask = nullptr) const;
  static constexpr uint8_t kOutside = 255;

 private:
  AugmentOptions options_;
  uint64_t seed_ = 0;
};

}  // namespace lockstep
