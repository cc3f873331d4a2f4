// The kind of a call of attention (core/kernels/attention/masked_attention.h).
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/attention/masked_attention.h"

namespace lockstep {

inline MaskedAttention kind_of(const AttentionArgs& a) {
  return {a.dtype, a.dim, a.kv_heads > 0 ? a.heads / a.kv_heads : 1, a.window, a.causal};
}

}  // namespace lockstep
