// The arithmetic of reductions: sums, maxima and minima over ranks, in rank order. bf16 and fp16 are computed in fp32
// and rounded once.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "core/base/dtype.h"

namespace lockstep {

// out[j][i] = in[0][i] op in[1][i] op ..., for i in [0, n) and every j. An output may be one of the inputs; no other
// overlap. If any input is NaN, the result is NaN.
void reduce_in_order(ReduceOp op, DType dtype, const std::vector<const void*>& in, const std::vector<void*>& out,
                     int64_t n);

// sum[i] = sum[i] op in[i], element type float or double.
template <class T>
void reduce_into(ReduceOp op, T* sum, const T* in, int64_t n);

// Convert n elements from (widen) or to (narrow_to) `dtype`, which is bf16 or fp16.
void widen(float* out, const void* in, DType dtype, int64_t n);
void narrow_to(void* out, const float* in, DType dtype, int64_t n);

}  // namespace lockstep
