// Convnet: two convolutions, max pooling, two linear layers; for small images.
#pragma once

#include "core/base/field.h"
#include "core/models/model.h"
#include "core/nn/layers.h"

namespace lockstep {

struct ConvnetOptions {
  std::vector<int64_t> channels = {32, 64};
  int64_t kernel = 3;
  int64_t hidden = 128;
  double dropout = 0;
};
std::vector<Field> fields(ConvnetOptions& o);

class Convnet : public Model {
 public:
  Convnet(const ConvnetOptions& options, const TaskSpec& task);
  std::vector<TensorNeed> reads() const override { return {{"images", TensorNeed::Type::kFloating, 3}}; }
  ModelTraits traits() const override { return {.rank = 0}; }
  Tensor forward(const Tensor& x) override;  // [B, H, W, C] -> [B, classes]
  double flops() const override { return flops_; }

 private:
  std::vector<Conv2d*> convs_;
  Linear *hidden_, *head_;
  Dropout* dropout_;
  double flops_ = 0;
};

}  // namespace lockstep
