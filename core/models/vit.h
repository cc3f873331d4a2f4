// ViT: a transformer over patches of an image, with a class token. Dosovitskiy et al., "An Image is Worth 16x16 Words"
// (2021).
#pragma once

#include "core/base/field.h"
#include "core/models/model.h"
#include "core/nn/transformer_block.h"

namespace lockstep {

struct VitOptions {
  int64_t patch = 16;
  int64_t layers = 12, heads = 12, width = 768;
  double dropout = 0;
  GeluForm gelu = GeluForm::kTanh;
  double norm_eps = 1e-6;
};
std::vector<Field> fields(VitOptions& o);

class Vit : public Model {
 public:
  Vit(const VitOptions& options, const TaskSpec& task);
  std::vector<TensorNeed> reads() const override { return {{"images", TensorNeed::Type::kFloating, 3}}; }
  ModelTraits traits() const override { return {.rank = 0}; }
  Tensor forward(const Tensor& x) override;  // [B, H, W, C] -> [B, classes]
  double flops() const override { return flops_; }

 private:
  Tensor& class_token_;  // [1, 1, width]
  Conv2d* patches_;
  Embedding* positions_;
  Dropout* drop_;
  std::vector<TransformerBlock*> blocks_;
  LayerNorm* norm_;
  Linear* head_;
  double flops_ = 0;
};

}  // namespace lockstep
