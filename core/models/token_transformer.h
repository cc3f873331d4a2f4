// TokenTransformer: a model of rows of tokens whose layers take an AttentionScope: it keeps the documents of a row
// apart, and where it is a decoder it goes on from a cache. Gpt, Llama and Bert derive from it.
#pragma once

#include "core/models/model.h"
#include "core/nn/attention_scope.h"

namespace lockstep {

class TokenTransformer : public Model {
 public:
  // Tokens int32 [B, T] -> [B, T, classes]; after a cache, of the last new token of each sequence alone: [B, 1,
  // classes].
  Tensor operator()(const Tensor& tokens_BT, const AttentionScope& scope = {}) {
    return surrounded([&] { return forward(tokens_BT, scope); });
  }
  virtual Tensor forward(const Tensor& tokens_BT, const AttentionScope& scope) = 0;
  Tensor forward(const Tensor& tokens_BT) final { return forward(tokens_BT, {}); }
  // In the scope of the batch's "documents" and "positions", where it has them.
  Tensor output_of(const Batch& batch) override;
  bool separates_documents() const final { return true; }
  // Whether the scope may have a cache.
  virtual bool takes_cache() const { return true; }
};

}  // namespace lockstep
