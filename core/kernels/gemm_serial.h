// The matrix product of one thread, for kernels that multiply matrices within their own pieces of work. Stateless;
// scratch slots 0 and 1 of the calling thread.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"
#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {

inline Matrix block_of(const Matrix& m, int64_t row, int64_t col, int64_t batch = 0) {
  Matrix out = m;
  out.data = static_cast<char*>(m.data) +
             (row * m.row_stride + col * m.col_stride + batch * m.batch_stride) * size_of(m.dtype);
  return out;
}

// Multiplies the first matrix of the batch, without epilogue and bias gradient. T, float or double, is the type of the
// sums; operands of other types are converted. Every element of C is one chain of multiply-adds over k in order; of two
// operands in bf16 it is, for each 32 of k, the sum of a chain over the even and one over the odd ones. Neither m, n,
// threads nor edges change its bits.
template <class T>
void gemm_serial(Parallel& parallel, const GemmArgs& g);
template <>
void gemm_serial<float>(Parallel& parallel, const GemmArgs& g);
template <>
void gemm_serial<double>(Parallel& parallel, const GemmArgs& g);

// The product of two operands in bf16 by AMX, for levels that have it (gemm_tiles.cpp).
void multiply_by_tiles(Parallel& parallel, const GemmArgs& g);

}  // namespace lockstep::inline LOCKSTEP_ISA
