#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Place place) {
  check(x.rank() >= 1 && weight.rank() == 1 && weight.dim(0) == x.dim(-1) && (!bias || bias.numel() == weight.numel()),
        "layer_norm: ", x, " with weight ", weight);
  const Tensor dense = raw::contiguous(x.detach());
  RowArgs r;
  r.cols = x.dim(-1);
  r.rows = r.cols ? x.numel() / r.cols : 0;
  r.scalars[0] = eps;
  const DType wide = x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  Tensor y = Tensor::empty(x.shape(), x.dtype()), mean = Tensor::empty({r.rows}, wide),
         rstd = Tensor::empty({r.rows}, wide);
  r.in[0] = raw::rows_of(dense, r.cols);
  r.in[1] = raw::same_row(weight);
  if (bias) r.in[2] = raw::same_row(bias);
  r.out[0] = raw::write_rows(y, r.cols);
  r.out[1] = raw::write_one_per_row(mean);
  r.out[2] = raw::write_one_per_row(rstd);
  raw::row(RowOp::kLayerNorm, r);
  return result_of("layer_norm", place, y, {&x, &weight, &bias},
                   [x = Saved(dense), w = Saved(weight), mean = Saved(mean), rstd = Saved(rstd), r](
                       const Tensor& gradient, Gradients& grads) {
                     const Tensor g = raw::contiguous(gradient);
                     const Tensor& input = x.get("layer_norm");
                     if (grads.wanted(1) || grads.wanted(2)) {
                       NormColumnsArgs c;
                       c.rows = r.rows, c.cols = r.cols;
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
                       RowArgs b;
                       b.rows = r.rows, b.cols = r.cols;
                       b.in[0] = raw::rows_of(g, r.cols);
                       b.in[1] = raw::rows_of(input, r.cols);
                       b.in[2] = raw::same_row(w.get("layer_norm"));
                       b.in[3] = raw::one_per_row(mean.get("layer_norm"));
                       b.in[4] = raw::one_per_row(rstd.get("layer_norm"));
                       const Tensor before = addend ? raw::contiguous(addend) : addend;
                       if (before) b.in[5] = raw::rows_of(before, r.cols);
                       if (r.rows == 1) b.in[3].row_stride = b.in[4].row_stride = 0;
                       b.out[0] = raw::write_rows(dx, r.cols);
                       raw::row(RowOp::kLayerNormBackward, b);
                     }
                   });
}

}  // namespace lockstep
