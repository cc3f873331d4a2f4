// TokenTransformer: a model of rows of tokens whose layers take an AttentionScope: it keeps the documents of a row
// apart, and where it is a decoder it goes on from a cache. Gpt, Llama and Bert derive from it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "core/models/model.h"
#include "core/nn/attention_scope.h"
#include "core/nn/layers.h"

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
  ModelTraits traits() const override { return {.rank = 1, .causal = true, .separates_documents = true}; }
  // Whether it ends in logits that are products of features and a weight, so that a loss may multiply by that itself
  // (train.loss_rows); then features() is overridden.
  virtual bool has_features() const { return false; }
  // That weight, [V, C]; null where the head multiplies in another way, such as with an adapter.
  virtual const Tensor* head() const { return nullptr; }
  // Logits are soft_cap(features x weight, logit_cap()) where this is above 0.
  virtual double logit_cap() const { return 0; }
  // The result of `use` with what the head multiplies, [B, T, C], of the same tensors as output_of(), and with that
  // weight, whose bytes are there while it runs and in its backward pass. Where head() is not null.
  using UseFeatures = std::function<Tensor(const Tensor& features, const Tensor& head)>;
  Tensor with_features(const Batch& batch, const UseFeatures& use);
  // What its tokens are looked up in, and whether its weight is also the head's.
  virtual Embedding& token_embedding() = 0;
  virtual bool is_tied() const = 0;
  // Whether the scope may have a cache.
  virtual bool takes_cache() const { return true; }
  // The longest text whose keys and values are still those that it had when it was shorter.
  virtual int64_t cached_tokens() const { return std::numeric_limits<int64_t>::max(); }

 protected:
  virtual Tensor features(const Tensor& tokens_BT, const AttentionScope& scope);
  virtual Tensor with_head(const std::function<Tensor(const Tensor& weight)>& use) { return use(*head()); }
};

}  // namespace lockstep
