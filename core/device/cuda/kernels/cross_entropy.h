// Cross-entropy over many classes, such as a vocabulary: the logits' maximum and the sum of their exponentials in one
// pass, after Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), and the gradient in a second
// one. Stateless.
#pragma once

#include "core/kernels/parallel.h"
#include "core/kernels/rows.h"

namespace lockstep::cuda {

// Runs the operation on `queue`, a CudaQueue, where it is one of cross-entropy that this kernel is made for: rows that
// a block takes, in fp32, bf16 or fp16, without label smoothing. Else returns false, and nothing was done.
bool cross_entropy(Parallel& queue, RowOp op, const RowArgs& a);

}  // namespace lockstep::cuda
