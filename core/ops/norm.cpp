#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

// A forward pass's arguments and what its backward pass reads; x is to come.
struct Norm {
  Norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
    const DType wide = raw::statistics_type(x);
    args.cols = x.dim(-1);
    args.rows = args.cols ? x.numel() / args.cols : 0;
    args.epsilon = eps;
    y = Tensor::empty(x.shape(), x.dtype());
    mean = Tensor::empty({args.rows}, wide);
    rstd = Tensor::empty({args.rows}, wide);
    args[LayerNormRows::kWeight] = raw::same_row(weight);
    if (bias) args[LayerNormRows::kBias] = raw::same_row(bias);
    args[LayerNormRows::kY] = raw::write_rows(y, args.cols);
    args[LayerNormRows::kMean] = raw::write_one_per_row(mean);
    args[LayerNormRows::kRstd] = raw::write_one_per_row(rstd);
  }
  RowArgs args;
  Tensor y, mean, rstd;
};

void check_norm(const char* name, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check(x.rank() >= 1 && weight.rank() == 1 && weight.dim(0) == x.dim(-1) && (!bias || bias.numel() == weight.numel()),
        name, ": ", x, " with weight ", weight);
}

// y with its backward pass; `dense` holds x's bytes, contiguous.
Tensor recorded(const Norm& norm, const Tensor& x, const Tensor& dense, const Tensor& weight, const Tensor& bias,
                CallSite place) {
  return result_of("layer_norm", place, norm.y, {&x, &weight, &bias},
                   [x = Saved(dense), w = Saved(weight), mean = Saved(norm.mean), rstd = Saved(norm.rstd),
                    rows = norm.args.rows, cols = norm.args.cols](const Tensor& gradient, Gradients& grads) {
                     const Tensor g = raw::contiguous(gradient);
                     const Tensor& input = x.get("layer_norm");
                     if (grads.wanted(1) || grads.wanted(2)) {
                       NormColumnsArgs c;
                       c.rows = rows, c.cols = cols;
                       c.g = g.read(), c.g_dtype = g.dtype();
                       c.x = input.read(), c.x_dtype = input.dtype();
                       c.mean = mean.get("layer_norm").read(), c.rstd = rstd.get("layer_norm").read();
                       if (grads.wanted(1)) {
                         Tensor dw = grads.target(1, c.accumulate_weight);
                         c.dweight = dw.write(), c.dweight_dtype = dw.dtype();
                       }
                       if (grads.wanted(2)) {
                         Tensor db = grads.target(2, c.accumulate_bias);
                         c.dbias = db.write(), c.dbias_dtype = db.dtype();
                       }
                       raw::launch([](Parallel& p, const NormColumnsArgs& args) { kernels(p).norm_columns(p, args); },
                                   c);
                     }
                     if (grads.wanted(0)) {
                       auto [dx, addend] = grads.sum_target(0);  // the residual's gradient is added in the same pass
                       using B = LayerNormBackwardRows;
                       RowArgs b;
                       b.rows = rows, b.cols = cols;
                       b[B::kG] = raw::rows_of(g, cols);
                       b[B::kX] = raw::rows_of(input, cols);
                       b[B::kWeight] = raw::same_row(w.get("layer_norm"));
                       b[B::kMean] = raw::one_per_row(mean.get("layer_norm"));
                       b[B::kRstd] = raw::one_per_row(rstd.get("layer_norm"));
                       const Tensor before = addend ? raw::contiguous(addend) : addend;
                       if (before) b[B::kAddend] = raw::rows_of(before, cols);
                       if (rows == 1) b[B::kMean].row_stride = b[B::kRstd].row_stride = 0;
                       b[B::kDx] = raw::write_rows(dx, cols);
                       raw::row(RowOp::kLayerNormBackward, b);
                     }
                   });
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, CallSite place) {
  const TraceOp op("layer_norm");
  check_norm("layer_norm", x, weight, bias);
  const Tensor dense = raw::contiguous(x.detach());
  Norm norm(x, weight, bias, eps);
  norm.args[LayerNormRows::kX] = raw::rows_of(dense, norm.args.cols);
  raw::row(RowOp::kLayerNorm, norm.args);
  return recorded(norm, x, dense, weight, bias, place);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, CallSite place) {
  const TraceOp op("rms_norm");
  check_norm("rms_norm", x, weight, {});
  const DType wide = raw::statistics_type(x);
  const Tensor dense = raw::contiguous(x.detach()), y = Tensor::empty(x.shape(), x.dtype());
  RowArgs a;
  a.cols = x.dim(-1);
  a.rows = a.cols ? x.numel() / a.cols : 0;
  a.epsilon = eps;
  const Tensor rstd = Tensor::empty({a.rows}, wide);
  a[RmsNormRows::kX] = raw::rows_of(dense, a.cols);
  a[RmsNormRows::kWeight] = raw::same_row(weight);
  a[RmsNormRows::kY] = raw::write_rows(y, a.cols);
  a[RmsNormRows::kRstd] = raw::write_one_per_row(rstd);
  raw::row(RowOp::kRmsNorm, a);
  return result_of("rms_norm", place, y, {&x, &weight},
                   [x = Saved(dense), w = Saved(weight), rstd = Saved(rstd), rows = a.rows, cols = a.cols](
                       const Tensor& gradient, Gradients& grads) {
                     const Tensor g = raw::contiguous(gradient);
                     const Tensor &input = x.get("rms_norm"), &inverse = rstd.get("rms_norm");
                     if (grads.wanted(1)) {
                       NormColumnsArgs c;
                       c.rows = rows, c.cols = cols;
                       c.g = g.read(), c.g_dtype = g.dtype();
                       c.x = input.read(), c.x_dtype = input.dtype();
                       c.rstd = inverse.read();
                       Tensor dw = grads.target(1, c.accumulate_weight);
                       c.dweight = dw.write(), c.dweight_dtype = dw.dtype();
                       raw::launch([](Parallel& p, const NormColumnsArgs& args) { kernels(p).norm_columns(p, args); },
                                   c);
                     }
                     if (grads.wanted(0)) {
                       auto [dx, addend] = grads.sum_target(0);  // the residual's gradient is added in the same pass
                       using B = RmsNormBackwardRows;
                       RowArgs b;
                       b.rows = rows, b.cols = cols;
                       b[B::kG] = raw::rows_of(g, cols);
                       b[B::kX] = raw::rows_of(input, cols);
                       b[B::kWeight] = raw::same_row(w.get("rms_norm"));
                       b[B::kRstd] = raw::one_per_row(inverse);
                       const Tensor before = addend ? raw::contiguous(addend) : addend;
                       if (before) b[B::kAddend] = raw::rows_of(before, cols);
                       b[B::kDx] = raw::write_rows(dx, cols);
                       raw::row(RowOp::kRmsNormBackward, b);
                     }
                   });
}

AddLayerNorm add_layer_norm(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias, double eps,
                            CallSite place) {
  const TraceOp op("add_layer_norm");
  check(a.shape() == b.shape() && a.dtype() == b.dtype(), "add_layer_norm: ", a, " and ", b,
        " (of equal shapes and types)");
  check_norm("add_layer_norm", a, weight, bias);
  const Tensor x = raw::contiguous(a.detach()), y = raw::contiguous(b.detach());
  Tensor total = Tensor::empty(a.shape(), a.dtype());
  Norm norm(a, weight, bias, eps);
  norm.args[AddLayerNormRows::kA] = raw::rows_of(x, norm.args.cols);
  norm.args[AddLayerNormRows::kB] = raw::rows_of(y, norm.args.cols);
  norm.args[AddLayerNormRows::kSum] = raw::write_rows(total, norm.args.cols);
  raw::row(RowOp::kAddLayerNorm, norm.args);
  const Tensor sum = result_of("add", place, total, {&a, &b}, [](const Tensor& g, Gradients& grads) {
    if (grads.wanted(0)) grads.pass(0, g);
    if (grads.wanted(1)) grads.pass(1, g);
  });
  return {sum, recorded(norm, sum, sum, weight, bias, place)};
}

}  // namespace lockstep
