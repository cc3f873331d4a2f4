#include "core/base/trace.h"
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

// y = x weight^T + bias: gives weight, input i, and bias, input i + 1, their gradients. The weight first: its reduction
// then overlaps the rest.
void add_linear_gradients(Gradients& grads, int i, const Tensor& g, const Tensor& x) {
  trace_mark();
  raw::GradientTarget weight, bias;
  if (grads.wanted(i)) weight.out = grads.target(i, weight.accumulate);
  if (grads.wanted(i + 1)) bias.out = grads.target(i + 1, bias.accumulate);
  if (weight.out && bias.out) raw::linear_gradients(weight, bias, g, x);
  else if (weight.out) raw::gemm(weight.out, g.transpose(0, 1), x, {}, weight.accumulate);
  else if (bias.out) raw::sum_dims(bias.out, g, {0}, bias.accumulate);
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, CallSite place) {
  const TraceOp op("matmul");
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

namespace {
// A frozen weight in codes becomes one of x's type for as long as the product takes.
Tensor decoded(const Tensor& weight, DType type) {
  if (!is_coded(weight.dtype())) return weight;
  const WithMemoryUse scratch(MemoryUse::kScratch);
  return raw::cast(weight, type);
}
}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, CallSite place) {
  const TraceOp op("linear");
  check(weight.rank() == 2 && x.rank() >= 1 && x.dim(-1) == weight.dim(1) && (!bias || bias.numel() == weight.dim(0)),
        "linear: ", x, " with weight ", weight, bias ? " and bias " : "", bias ? to_text(bias) : "");
  const Tensor rows = raw::contiguous(x.detach()).reshape({-1, weight.dim(1)});  // [N, in]
  Shape out = x.shape();
  out[x.rank() - 1] = weight.dim(0);
  Tensor y = Tensor::empty(out, x.dtype());
  raw::gemm(y.reshape({rows.dim(0), weight.dim(0)}), rows, decoded(weight.detach(), x.dtype()).transpose(0, 1),
            bias ? bias.detach() : bias);
  return result_of("linear", place, y, {&x, &weight, &bias},
                   [x = Saved(rows), w = Saved(weight), shape = x.shape()](const Tensor& gradient, Gradients& grads) {
                     const Tensor &rows = x.get("linear"), &weight = w.get("linear");
                     const Tensor g = raw::contiguous(gradient).reshape({rows.dim(0), weight.dim(0)});
                     add_linear_gradients(grads, 1, g, rows);
                     if (grads.wanted(0)) {
                       bool accumulate = false;
                       Tensor dx = grads.target(0, accumulate);
                       raw::gemm(dx.reshape(rows.shape()), g, decoded(weight, g.dtype()), {}, accumulate);
                     }
                   });
}

Tensor feed_forward(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                    const Tensor& down_bias, CallSite place) {
  const TraceOp op("feed_forward");
  check(x.rank() >= 1 && up.rank() == 2 && down.rank() == 2 && x.dim(-1) == up.dim(1) && up.dim(0) == down.dim(1) &&
            (!up_bias || up_bias.numel() == up.dim(0)) && (!down_bias || down_bias.numel() == down.dim(0)),
        "feed_forward: ", x, " with weights ", up, " and ", down, up_bias ? " and biases " : "",
        up_bias ? to_text(up_bias) : "", down_bias ? " and " : "", down_bias ? to_text(down_bias) : "");
  auto values = [](const Tensor& t) { return t ? t.detach() : t; };
  const Tensor rows = raw::contiguous(x.detach()).reshape({-1, up.dim(1)});  // [N, in]
  const Shape hidden{rows.dim(0), up.dim(0)};
  const Tensor pre = Tensor::empty(hidden, x.dtype()), h = Tensor::empty(hidden, x.dtype());
  raw::gemm_gelu(h, pre, rows, up.transpose(0, 1), values(up_bias));
  Shape out = x.shape();
  out[x.rank() - 1] = down.dim(0);
  Tensor y = Tensor::empty(out, x.dtype());
  raw::gemm(y.reshape({rows.dim(0), down.dim(0)}), h, down.transpose(0, 1), values(down_bias));
  return result_of("feed_forward", place, y, {&x, &up, &up_bias, &down, &down_bias},
                   [x = Saved(rows), pre = Saved(pre), h = Saved(h), up = Saved(up), down = Saved(down)](
                       const Tensor& gradient, Gradients& grads) {
                     const char* const op = "feed_forward";
                     const Tensor &rows = x.get(op), &weight = up.get(op), &last = down.get(op);
                     const Tensor g = raw::contiguous(gradient).reshape({rows.dim(0), last.dim(0)});
                     // Into h's own memory: nobody else has seen it, and down's gradient has read it for the last time.
                     const Tensor& dpre = h.get(op);
                     add_linear_gradients(grads, 3, g, dpre);
                     if (!grads.wanted(0) && !grads.wanted(1) && !grads.wanted(2)) return;
                     raw::gemm_gelu_backward(dpre, g, last, pre.get(op));
                     add_linear_gradients(grads, 1, dpre, rows);
                     if (grads.wanted(0)) {
                       bool accumulate = false;
                       Tensor dx = grads.target(0, accumulate);
                       raw::gemm(dx.reshape(rows.shape()), dpre, weight, {}, accumulate);
                     }
                   });
}

}  // namespace lockstep
