// BERT: a bidirectional transformer that tells hidden tokens from their surroundings, or the label of a text. Devlin et
// al., "BERT" (2019): post-norm, learned positions; all tokens are of segment 0. Where the data hides tokens
// (data.mask), a tied head behind a transform; where texts have a label each, as BertForSequenceClassification of
// transformers: the first token's features through a linear layer, tanh and dropout, and a linear layer of the labels.
// DistilBERT (Sanh et al., 2019) is the same without segments, with relu in the place of tanh; RoBERTa (Liu et al.,
// 2019) has its first position in a later row of the table.
#pragma once

#include "core/base/field.h"
#include "core/models/token_transformer.h"
#include "core/nn/transformer_block.h"

namespace lockstep {

// What stands between the two linear layers of the labels: tanh of BERT, relu of DistilBERT.
enum class BertPooler : uint8_t { kTanh, kRelu };

struct BertOptions {
  int64_t layers = 12, heads = 12, width = 768;
  double dropout = 0.1;
  GeluForm gelu = GeluForm::kTanh;
  BertPooler pooler = BertPooler::kTanh;
  double norm_eps = 1e-12;
  int64_t first_position = 0;             // the row of the table of positions that a text's first token has
  int64_t segments = 0;                   // rows of the embedding of segments; 0: no such embedding
  int64_t vocabulary = 0, positions = 0;  // 0: those of the data
};
std::vector<Field> fields(BertOptions& o);

// The head's transform: a linear layer, gelu, a norm.
class BertTransform : public ModuleOf<Tensor> {
 public:
  BertTransform(int64_t width, GeluForm gelu, double eps);
  Tensor forward(const Tensor& x) override;

 private:
  GeluForm gelu_;
  Linear& dense_;
  LayerNorm& ln_;
};

class Bert : public TokenTransformer {
 public:
  Bert(const BertOptions& options, const TaskSpec& task);
  std::vector<TensorNeed> reads() const override { return {{"tokens", TensorNeed::Type::kInteger, 1}}; }
  ModelTraits traits() const override { return {.rank = head_ ? 0 : 1, .causal = false, .separates_documents = true}; }
  bool takes_cache() const override { return false; }
  Embedding& token_embedding() override { return tokens_; }
  bool is_tied() const override { return head_bias_ != nullptr; }
  // int32 -> [B, T, V], or the labels of texts [B, classes].
  using TokenTransformer::forward;
  Tensor forward(const Tensor& tokens_BT, const AttentionScope& scope) override;
  double flops() const override { return flops_; }

 private:
  Tensor positions_of_tokens(const Tensor& tokens_BT, const AttentionScope& scope);

  int64_t context_, first_position_;
  BertPooler pooling_;
  Tensor* head_bias_;  // [V]; null with labels
  Embedding &tokens_, &positions_;
  Embedding* segments_;  // null without
  LayerNorm& ln_;
  Dropout& drop_;
  std::vector<TransformerBlock*> blocks_;
  BertTransform* transform_ = nullptr;          // null with labels
  Linear *pooler_ = nullptr, *head_ = nullptr;  // null without
  Dropout* head_drop_ = nullptr;
  double flops_ = 0;
};

}  // namespace lockstep
