// KeyValueCache: the keys and values of the tokens that a language model has seen, so that a pass computes new ones
// only. Of several sequences of unequal lengths; a pass is of all of them or of some that follow each other. Owned by
// whoever generates; used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/device/context.h"
#include "core/nn/attention_scope.h"
#include "core/nn/module.h"

namespace lockstep {

class KeyValueCache {
 public:
  // Room for `capacity` tokens of each sequence.
  KeyValueCache(int64_t sequences, int64_t capacity);
  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }  // tokens of each sequence
  int64_t length(int64_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  // Forgets the tokens of a sequence from `length` on.
  void truncate(int64_t sequence, int64_t length) { lengths_[static_cast<size_t>(sequence)] = length; }
  // Sequence `to` becomes a copy of sequence `from`, which then has no tokens. Between passes.
  void move(int64_t from, int64_t to);

  // The following are of the CachedPass that there is, of `rows` sequences.
  // int32 [rows]: the position of the first new token of each; on the current device.
  const Tensor& starts() const { return starts_; }
  // Whether each sequence begins with this pass: its new tokens then see each other alone.
  bool begins() const;
  // int32 [rows, time]: the positions of new tokens, the capacity's last one at most.
  Tensor positions(int64_t time) const;
  // The last new token of each sequence, in x [rows, T, ...]: [rows, 1, ...].
  Tensor last_of(const Tensor& x) const;

  struct KeysAndValues {
    Tensor keys, values;  // [rows, capacity, kv_heads, D]
  };
  // Writes new keys and values [rows, T, kv_heads, D] of an attention layer behind those of earlier passes, and
  // returns all.
  KeysAndValues append(const Module& layer, const Tensor& keys, const Tensor& values);

 private:
  friend class CachedPass;
  int64_t rows() const { return static_cast<int64_t>(counts_.size()); }
  int64_t capacity_;
  std::vector<int64_t> lengths_;
  int64_t first_ = 0;            // sequence of the pass
  std::vector<int64_t> counts_;  // new tokens of each sequence of the pass
  Tensor starts_;
  std::map<const Module*, KeysAndValues> layers_;  // of all sequences
};

// One pass that follows the tokens of `cache`: over new tokens [counts.size(), T] of the sequences from `first` on, of
// which the first counts[b] of sequence first + b, at least 1, are its own and the rest is padding. The model gets
// scope(). At the end of this object's life the cache holds the new tokens, or, where an exception ends it, those from
// before. Throws ExitCode::kInternal where they do not fit. Without gradients.
class CachedPass {
 public:
  CachedPass(KeyValueCache& cache, const std::vector<int64_t>& counts, int64_t first = 0);
  ~CachedPass();
  CachedPass(const CachedPass&) = delete;
  AttentionScope scope() const { return {.cache = &cache_}; }

 private:
  NoGrad no_grad_;
  KeyValueCache& cache_;
  int exceptions_;  // in flight at the start
};

// Causal attention (core/ops/ops.h) of an attention layer, which is that of the caller, in this scope. Documents and a
// cache together throw ExitCode::kInternal. Keys and values: [B, T, kv_heads, D].
Tensor causal_attention_of(const Module& layer, const Tensor& q, const Tensor& k, const Tensor& v,
                           const AttentionScope& scope, int64_t window = 0, double score_cap = 0);

}  // namespace lockstep
