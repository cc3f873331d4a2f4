// Which keys the queries of a sample see, as a table that is added to the scores: how a library is told of documents
// and lengths. Stateless.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"

namespace lockstep::cuda {

// Elements from one query's row of the table to the next: rows begin at addresses of 16 bytes.
inline int64_t mask_stride(const AttentionArgs& a) { return (a.key_time() + 7) / 8 * 8; }
inline int64_t mask_bytes(const AttentionArgs& a) { return a.batch * a.time * mask_stride(a) * size_of(a.dtype); }

// `out`: [batch, time, mask_stride] of a.dtype, a 16-bit type: 0 where the documents and lengths of `a` let a query see
// a key, and a number that no exponential survives where they do not. Causal order and windows are not in it. Not
// minus infinity: the maximum of scores that are all masked would make NaN.
void attention_mask(Parallel& queue, const AttentionArgs& a, void* out);

}  // namespace lockstep::cuda
