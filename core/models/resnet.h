// ResNet: residual convolutional networks with batch norm. He et al., "Deep Residual Learning for Image Recognition"
// (2016); as torchvision builds them, the stride of a bottleneck is that of its 3 x 3 convolution. Parameters have
// torchvision's names and, transposed to [out, kh, kw, in], its shapes.
#pragma once

#include "core/base/field.h"
#include "core/models/model.h"
#include "core/nn/layers.h"

namespace lockstep {

struct ResnetOptions {
  enum class Stem { kLarge, kSmall };
  int64_t depth = 18;  // 18, 34, 50, 101 or 152
  Stem stem = Stem::kLarge;
  int64_t width = 64;  // channels of the first stage
};
std::vector<Field> fields(ResnetOptions& o);

// Two 3 x 3 convolutions, or 1 x 1, 3 x 3 and 1 x 1 (bottleneck), and the shortcut around them.
class ResidualBlock : public ModuleOf<Tensor> {
 public:
  ResidualBlock(int64_t in, int64_t width, int64_t stride, bool bottleneck);
  Tensor forward(const Tensor& x) override;

 private:
  std::vector<std::pair<Conv2d*, BatchNorm*>> layers_;
  Conv2d* down_ = nullptr;
  BatchNorm* down_norm_ = nullptr;
};

class Resnet : public Model {
 public:
  Resnet(const ResnetOptions& options, const TaskSpec& task);
  std::vector<TensorNeed> reads() const override { return {{"images", TensorNeed::Type::kFloating, 3}}; }
  ModelTraits traits() const override { return {.rank = 0}; }
  Tensor forward(const Tensor& x) override;  // [B, H, W, C] -> [B, classes]
  double flops() const override { return flops_; }

 private:
  bool large_;
  Conv2d* conv_;
  BatchNorm* norm_;
  std::vector<ResidualBlock*> blocks_;
  Linear* head_;
  double flops_ = 0;
};

}  // namespace lockstep
