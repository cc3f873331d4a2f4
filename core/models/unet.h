// U-Net: segmentation by an encoder and a decoder of equal levels, joined at each. Ronneberger et al., "U-Net" (2015),
// with padded convolutions and batch norm.
#pragma once

#include "core/base/field.h"
#include "core/models/model.h"
#include "core/nn/layers.h"

namespace lockstep {

struct UnetOptions {
  int64_t levels = 3;  // halvings of the image
  int64_t width = 16;  // channels of the first level; each further one has twice as many
};
std::vector<Field> fields(UnetOptions& o);

// Two 3 x 3 convolutions with batch norm and relu.
class UnetBlock : public ModuleOf<Tensor> {
 public:
  UnetBlock(int64_t in, int64_t out);
  Tensor forward(const Tensor& x) override;

 private:
  Conv2d &conv1_, &conv2_;
  BatchNorm &norm1_, &norm2_;
};

class Unet : public Model {
 public:
  Unet(const UnetOptions& options, const TaskSpec& task);
  std::vector<TensorNeed> reads() const override { return {{"images", TensorNeed::Type::kFloating, 3}}; }
  ModelTraits traits() const override { return {.rank = 2}; }
  Tensor forward(const Tensor& x) override;  // [B, H, W, C] -> [B, H, W, classes]
  double flops() const override { return flops_; }

 private:
  std::vector<UnetBlock*> down_, join_;
  std::vector<ConvTranspose2d*> up_;
  Conv2d* head_;
  double flops_ = 0;
};

}  // namespace lockstep
