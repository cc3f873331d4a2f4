// BERT: a bidirectional transformer that tells hidden tokens from their surroundings. Devlin et al., "BERT" (2019):
// post-norm, learned positions, a tied head behind a transform. All tokens are of segment 0. Its data hides tokens
// (data.mask).
#pragma once

#include "core/base/field.h"
#include "core/models/model.h"
#include "core/nn/encoder.h"

namespace lockstep {

struct BertOptions {
  int64_t layers = 12, heads = 12, width = 768;
  double dropout = 0.1;
  Gelu gelu = Gelu::kTanh;
  int64_t segments = 0;                   // rows of the embedding of segments; 0: no such embedding
  int64_t vocabulary = 0, positions = 0;  // 0: those of the data
};
std::vector<Field> fields(BertOptions& o);

// The head's transform: a linear layer, gelu, a norm.
class BertTransform : public Module {
 public:
  BertTransform(int64_t width, Gelu gelu);
  Tensor forward(const Tensor& x) override;

 private:
  Gelu gelu_;
  Linear& dense_;
  LayerNorm& ln_;
};

class Bert : public Model {
 public:
  Bert(const BertOptions& options, const TaskSpec& task);
  std::vector<TensorNeed> reads() const override {
    return {{"tokens", TensorNeed::Type::kInteger, 1}, {std::string(kLabels), TensorNeed::Type::kInteger, 1}};
  }
  bool sees_ahead() const override { return true; }
  Tensor forward(const Tensor& tokens_BT) override;  // int32 -> [B, T, V]
  double flops() const override { return flops_; }

 private:
  int64_t context_;
  Tensor& head_bias_;  // [V]
  Embedding &tokens_, &positions_;
  Embedding* segments_;  // null without
  LayerNorm& ln_;
  Dropout& drop_;
  std::vector<EncoderBlock*> blocks_;
  BertTransform* transform_;
  double flops_ = 0;
};

}  // namespace lockstep
