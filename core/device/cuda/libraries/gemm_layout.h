// The matrix product in the words of a column-major library: layouts, element types and what has to be copied first.
// Stateless, no CUDA: tested on a CPU with a product of its own.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "core/kernels/kernels.h"

namespace lockstep::cuda {

// A column-major matrix (element (i, j) at i + j * ld), taken transposed where it says so.
struct ColumnMajor {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  bool transposed = false;
  int64_t rows = 0, cols = 0;  // as it lies in memory
  int64_t ld = 0, batch_stride = 0;
  int alignment = 16;  // in bytes, that every matrix of the batch has; of strides, not of where `data` happens to be
};

// C[m, n] = op(A)[m, k] op(B)[k, n] (+ C) (+ bias, one value a row), in batches. The row-major C of GemmArgs is the
// column-major transpose, so A and B change places, and a value a column becomes one a row. Neither m, n, k nor batch
// is 0. What goes beyond the product with its bias is for A and B of 16 bits and a batch of 1.
struct GemmCall {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  ColumnMajor a, b, c;
  const void* bias = nullptr;  // of A's, B's and C's type, which are then one
  bool accumulate = false;
  bool tf32 = false;                    // A and B of fp32 may be rounded to TF32
  Epilogue epilogue = Epilogue::kNone;  // C has then A's type, and a leading dimension that is a multiple of 8
  void* aux = nullptr;                  // of the epilogue: of C's type and leading dimension
  void* bias_gradient = nullptr;        // [n] of C's type: overwritten by the sums of op(B) over k; without epilogue

  bool beyond_product() const { return epilogue != Epilogue::kNone || bias_gradient; }
};

// All that an algorithm, or its refusal, may depend on: equal keys, equal plan. No address is in it, so that neither
// the place of a parameter in its buffer nor the allocator's mood changes a bit.
using GemmKey = std::array<int64_t, 14>;
GemmKey key_of(const GemmCall& call);
struct GemmKeyHash {
  size_t operator()(const GemmKey& key) const;
};
// "768 x 4096 x 3072, bf16 by bf16 into fp32, NT, ld 768 3072 768, bias gradient": one line for people, one for each
// key.
std::string to_text(const GemmCall& call);

// Memory in the queue's order, aligned to 16 bytes, for slots 0 to 3; kept until the next product asks for it.
using GemmScratch = FunctionRef<void*(int slot, int64_t bytes)>;
// False, with nothing done, where the library has no algorithm for a call that goes beyond the product; the answer may
// depend on the call's key alone.
using GemmProduct = FunctionRef<bool(const GemmCall&)>;

// Does what `g` says (core/kernels/args.h) through `product` and the kernels of the queue's table. What the library
// cannot take is brought into shape in scratch: operands with no unit stride, of types that differ, or not aligned to
// 16 bytes; results of another type than the product has, with one rounding. Sums in fp32; in fp64 where A is fp64.
// An epilogue or a bias gradient is asked of `product` where GemmCall has room for it, and a pass after it elsewhere.
void gemm_in_steps(Parallel& queue, const GemmArgs& g, GemmScratch scratch, GemmProduct product);

}  // namespace lockstep::cuda
