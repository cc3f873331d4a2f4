// AttentionScope: what the tokens of a pass see beside the tokens of their own row, or in their place. A plain value,
// which a model hands to each of its layers with attention. Borrows the cache.
#pragma once

#include "core/tensor/tensor.h"

namespace lockstep {

class KeyValueCache;  // core/nn/key_value_cache.h

struct AttentionScope {
  // Several texts in one row, none of which sees another (data.packing: pack), or a text and its padding. Both
  // undefined: a row is one text.
  Tensor documents = {};  // int32 [B, T]: equal for the tokens of one document
  Tensor positions = {};  // int32 [B, T]: of each token in its document, from 0
  // The tokens of earlier passes, which these follow (CachedPass); null: there are none. Not together with documents.
  KeyValueCache* cache = nullptr;
};

}  // namespace lockstep
