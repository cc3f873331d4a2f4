// MaskedAttention: a kind of attention under documents or lengths, by all that a library's kernel for it may depend on
// beside the extents.
#pragma once

#include <compare>
#include <cstdint>
#include <set>

#include "core/base/dtype.h"

namespace lockstep {

struct MaskedAttention {
  DType dtype = DType::kFloat32;
  int64_t dim = 0;     // features of a head
  int64_t group = 1;   // heads of queries for each head of keys
  int64_t window = 0;  // as in AttentionArgs
  bool causal = false;
  auto operator<=>(const MaskedAttention&) const = default;
};
using MaskedAttentions = std::set<MaskedAttention>;

}  // namespace lockstep
