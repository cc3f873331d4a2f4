// Attention in kernels of our own, for what cuDNN's does not take: fp32, fp64, heads of other sizes, lengths, documents
// and dropout. Tiles of queries meet tiles of keys in shared memory, so that memory grows linearly with the sequence
// length; the backward pass recomputes the scores, once for dQ and once for dK and dV, so that every sum has one owner
// and one order. After Dao et al., "FlashAttention" (2022). Stateless.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"

namespace lockstep::cuda {

// `queue`: a CudaQueue. Sums in fp32, in fp64 where q, k and v are. Throws Error(kConfig) where a head is too wide for
// a block's shared memory (beyond 2,000 elements).
void tiled_attention(Parallel& queue, const AttentionArgs& a);
void tiled_attention_backward(Parallel& queue, const AttentionArgs& a);

}  // namespace lockstep::cuda
