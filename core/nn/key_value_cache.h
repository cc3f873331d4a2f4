// KeyValueCache: the keys and values of the tokens that a language model has seen, so that a pass computes new ones
// only. Of several sequences of unequal lengths. Owned by whoever generates; used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/device/context.h"
#include "core/nn/module.h"

namespace lockstep {

class KeyValueCache {
 public:
  // Room for `capacity` tokens of each sequence.
  KeyValueCache(int64_t sequences, int64_t capacity);
  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }  // tokens of each sequence
  // Forgets the tokens of a sequence from `length` on.
  void truncate(int64_t sequence, int64_t length) { lengths_[static_cast<size_t>(sequence)] = length; }
  // int32 [sequences]: the position of the first new token of each; on the current device.
  const Tensor& starts() const { return starts_; }
  // int32 [sequences, time]: the positions of new tokens, the capacity's last one at most.
  Tensor positions(int64_t time) const;
  // Row counts[b] - 1 of each sequence b in x [sequences, T, ...]: [sequences, 1, ...]: its last new token.
  Tensor last_of(const Tensor& x) const;

  struct KeysAndValues {
    Tensor keys, values;  // [sequences, capacity, kv_heads, D]
  };
  // Writes new keys and values [sequences, T, kv_heads, D] of an attention layer behind those of earlier passes, and
  // returns all.
  const KeysAndValues& append(const Module& layer, const Tensor& keys, const Tensor& values);

 private:
  friend class WithKeyValues;
  int64_t capacity_;
  std::vector<int64_t> lengths_, counts_;
  Tensor starts_;
  std::map<const Module*, KeysAndValues> layers_;
};

// Passes in this scope go on from `cache`: one pass over new tokens [sequences, T], of which the first counts[b] of
// sequence b, at least 1, are its own and the rest is padding. At the end of the scope the cache holds the new tokens,
// or, where an exception ends it, those from before. Throws ExitCode::kInternal where they do not fit. Without
// gradients.
class WithKeyValues {
 public:
  WithKeyValues(KeyValueCache& cache, const std::vector<int64_t>& counts);
  ~WithKeyValues();
  WithKeyValues(const WithKeyValues&) = delete;

 private:
  NoGrad no_grad_;
  KeyValueCache& cache_;
  KeyValueCache* before_;
  int exceptions_;  // in flight at the start of the scope
};

// Causal attention (core/ops/ops.h) of an attention layer: to the tokens of its own document where rows hold several
// (core/nn/documents.h), and in a pass that goes on from a cache, to the keys and values of earlier passes too; both
// together throw ExitCode::kInternal. The layer is that of the caller. Keys and values: [B, T, kv_heads, D].
Tensor causal_attention_of(const Module& layer, const Tensor& q, const Tensor& k, const Tensor& v, int64_t window = 0);

}  // namespace lockstep
