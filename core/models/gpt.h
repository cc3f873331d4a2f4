// GPT: a decoder-only transformer as GPT-2 has it (pre-norm, learned positions, tied head). Radford et al. 2019.
#pragma once

#include "core/base/field.h"
#include "core/models/token_transformer.h"
#include "core/nn/transformer_block.h"

namespace lockstep {

struct GptOptions {
  int64_t layers = 4, heads = 4, width = 128;
  double dropout = 0;
  bool bias = true;                       // in linear layers and norms
  int64_t vocabulary = 0, positions = 0;  // 0: those of the data
};
std::vector<Field> fields(GptOptions& o);

class Gpt : public TokenTransformer {
 public:
  Gpt(const GptOptions& options, const TaskSpec& task);
  std::vector<TensorNeed> reads() const override { return {{"tokens", TensorNeed::Type::kInteger, 1}}; }
  bool has_features() const override { return true; }
  Embedding& token_embedding() override { return wte_; }
  bool is_tied() const override { return true; }
  const Tensor* head() const override { return &wte_.weight(); }
  using TokenTransformer::forward;
  // int32 -> [B, T, V]; after a cache [B, 1, V].
  Tensor forward(const Tensor& tokens_BT, const AttentionScope& scope) override;
  double flops() const override;

 protected:
  Tensor features(const Tensor& tokens_BT, const AttentionScope& scope) override;

 private:
  int64_t context_;
  Embedding &wte_, &wpe_;
  Dropout& drop_;
  std::vector<TransformerBlock*> blocks_;
  LayerNorm* ln_;
};

}  // namespace lockstep
