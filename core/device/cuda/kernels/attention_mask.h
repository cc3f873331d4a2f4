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
// a key, and elsewhere a number so low that the exponential of such a score is 0. Causal order and windows are not in
// it. It is finite: of scores that are all minus infinity the maximum is, too, and their differences from it are NaN.
void attention_mask(Parallel& queue, const AttentionArgs& a, void* out);

}  // namespace lockstep::cuda
