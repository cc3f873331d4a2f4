// A matrix product's epilogue and bias gradient (GemmArgs) as separate passes after it: always on a CPU, on a GPU if
// the library cannot fuse them. Stateless.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/math.h"
#include "core/kernels/parallel.h"
#include "core/kernels/pointwise.h"

namespace lockstep::inline LOCKSTEP_ISA {

// The product without epilogue and bias gradient.
inline GemmArgs product_alone(const GemmArgs& g) {
  GemmArgs out = g;
  if (g.epilogue == Epilogue::kGelu) out.c.data = g.aux;
  out.epilogue = Epilogue::kNone;
  out.aux = out.bias_gradient = nullptr;
  return out;
}

// The passes, by these two kernels.
inline void passes_after_product(Parallel& where, const GemmArgs& g,
                                 void (*pointwise)(Parallel&, PointwiseOp, const PointwiseArgs&),
                                 void (*column_sum)(Parallel&, const ColumnArgs&)) {
  if (g.epilogue != Epilogue::kNone && g.m * g.n > 0) {
    PointwiseArgs a;
    a.numel = g.m * g.n;
    const bool dense = g.c.row_stride == g.n;  // then one dimension
    a.dims = dense ? 1 : 2;
    a.sizes[0] = dense ? a.numel : g.m, a.sizes[1] = g.n;
    auto view = [&](void* data) { return Operand{data, g.c.dtype, {dense ? 1 : g.c.row_stride, 1}}; };
    a.outs = 1;
    a.out[0] = view(g.c.data);
    if (g.epilogue == Epilogue::kGeluBackward) a.in[a.ins++] = view(g.c.data);
    a.in[a.ins++] = view(g.aux);
    pointwise(where, g.epilogue == Epilogue::kGelu ? PointwiseOp::kGelu : PointwiseOp::kGeluBackward, a);
  }
  if (g.bias_gradient && g.m > 0) {
    ColumnArgs a;
    a.rows = g.k, a.cols = g.m;
    a.in = g.a.data, a.in_dtype = g.a.dtype;
    a.out = g.bias_gradient, a.out_dtype = g.bias_gradient_dtype;
    a.accumulate = g.accumulate_bias_gradient;
    column_sum(where, a);
  }
}

}  // namespace lockstep::inline LOCKSTEP_ISA
