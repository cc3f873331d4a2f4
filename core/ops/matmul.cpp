#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

// dC -> dA += dC B^T, dB += A^T dC, of rank-2 or batched rank-3 operands.
void product_backward(const Tensor& g, const Tensor& a, const Tensor& b, Gradients& grads) {
  if (grads.wanted(0)) {
    bool accumulate = false;
    Tensor da = grads.target(0, accumulate);
    raw::gemm(da.reshape(a.shape()), g, b.transpose(-1, -2), {}, accumulate);
  }
  if (grads.wanted(1)) {
    bool accumulate = false;
    Tensor db = grads.target(1, accumulate);
    raw::gemm(db.reshape(b.shape()), a.transpose(-1, -2), g, {}, accumulate);
  }
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Place place) {
  check(a.rank() >= 2 && b.rank() >= 2 && a.dim(-1) == b.dim(-2), "matmul: ", a, " by ", b);
  Shape out = a.shape();
  out[a.rank() - 1] = b.dim(-1);
  Tensor a3, b3;
  if (b.rank() == 2) {  // one product of all rows
    a3 = a.rank() == 2 ? a.detach() : raw::contiguous(a.detach()).reshape({-1, a.dim(-1)});
    b3 = b.detach();
  } else {
    check(a.rank() == b.rank(), "matmul: ", a, " by ", b, ": another number of dimensions");
    for (int i = 0; i < a.rank() - 2; ++i)
      check(a.dim(i) == b.dim(i), "matmul: ", a, " by ", b, ": other leading extents");
    auto batched = [](const Tensor& t) {
      return t.rank() == 3 ? t.detach() : raw::contiguous(t.detach()).reshape({-1, t.dim(-2), t.dim(-1)});
    };
    a3 = batched(a);
    b3 = batched(b);
  }
  Tensor y = Tensor::empty(out, a.dtype());
  Shape flat = a3.shape();
  flat[a3.rank() - 1] = b.dim(-1);
  raw::gemm(y.reshape(flat), a3, b3);
  return result_of("matmul", place, y, {&a, &b},
                   [a = Saved(a3), b = Saved(b3), flat](const Tensor& g, Gradients& grads) {
                     product_backward(raw::contiguous(g).reshape(flat), a.get("matmul"), b.get("matmul"), grads);
                   });
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Place place) {
  check(weight.rank() == 2 && x.rank() >= 1 && x.dim(-1) == weight.dim(1) && (!bias || bias.numel() == weight.dim(0)),
        "linear: ", x, " with weight ", weight, bias ? " and bias " : "", bias ? to_text(bias) : "");
  const Tensor rows = raw::contiguous(x.detach()).reshape({-1, weight.dim(1)});  // [N, in]
  Shape out = x.shape();
  out[x.rank() - 1] = weight.dim(0);
  Tensor y = Tensor::empty(out, x.dtype());
  raw::gemm(y.reshape({rows.dim(0), weight.dim(0)}), rows, weight.transpose(0, 1), bias ? bias.detach() : bias);
  return result_of("linear", place, y, {&x, &weight, &bias},
                   [x = Saved(rows), w = Saved(weight), shape = x.shape()](const Tensor& gradient, Gradients& grads) {
                     const Tensor &rows = x.get("linear"), &weight = w.get("linear");
                     const Tensor g = raw::contiguous(gradient).reshape({rows.dim(0), weight.dim(0)});
                     bool accumulate = false;
                     // The weight first: its reduction then overlaps the rest.
                     if (grads.wanted(1)) {
                       Tensor dw = grads.target(1, accumulate);
                       raw::gemm(dw, g.transpose(0, 1), rows, {}, accumulate);
                     }
                     if (grads.wanted(2)) {
                       Tensor db = grads.target(2, accumulate);
                       raw::sum_dims(db, g, {0}, accumulate);
                     }
                     if (grads.wanted(0)) {
                       Tensor dx = grads.target(0, accumulate);
                       raw::gemm(dx.reshape(rows.shape()), g, weight, {}, accumulate);
                     }
                   });
}

}  // namespace lockstep
