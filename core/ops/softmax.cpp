#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

// Runs on the stream: the targets may have been written by work that is still under way.
void check_targets(const Tensor& target, int64_t classes, int64_t ignored) {
  IndexCheckArgs a;
  a.index = static_cast<const int32_t*>(target.read());
  a.count = target.numel(), a.end = classes, a.ignored = ignored;
  a.use = IndexCheckArgs::Use::kTarget;
  raw::launch([](Parallel& p, const IndexCheckArgs& args) { kernels(p).check_indices(p, args); }, a);
}

}  // namespace

Tensor softmax(const Tensor& x, Place place) {
  const TraceOp op("softmax");
  check(x.rank() >= 1, "softmax: ", x);
  const Tensor dense = raw::contiguous(x.detach());
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  RowArgs r = raw::rows_along_last(x);
  r[SoftmaxRows::kX] = raw::rows_of(dense, r.cols);
  r[SoftmaxRows::kY] = raw::write_rows(y, r.cols);
  raw::row(RowOp::kSoftmax, r);
  return result_of("softmax", place, y, {&x}, [y = Saved(y)](const Tensor& gradient, Gradients& grads) {
    using B = SoftmaxBackwardRows;
    const Tensor g = raw::contiguous(gradient);
    Tensor dx = Tensor::empty(g.shape(), g.dtype());
    RowArgs b = raw::rows_along_last(g);
    b[B::kG] = raw::rows_of(g, b.cols);
    b[B::kY] = raw::rows_of(y.get("softmax"), b.cols);
    b[B::kDx] = raw::write_rows(dx, b.cols);
    raw::row(RowOp::kSoftmaxBackward, b);
    grads.add(0, dx);
  });
}

Tensor log_softmax(const Tensor& x, Place place) {
  const TraceOp op("log_softmax");
  check(x.rank() >= 1, "log_softmax: ", x);
  const Tensor dense = raw::contiguous(x.detach()), y = Tensor::empty(x.shape(), x.dtype());
  RowArgs r = raw::rows_along_last(x);
  r[MapRows::kX] = raw::rows_of(dense, r.cols);
  r[MapRows::kY] = raw::write_rows(y, r.cols);
  raw::row(RowOp::kLogSoftmax, r);
  return result_of("log_softmax", place, y, {&x}, [y = Saved(y)](const Tensor& gradient, Gradients& grads) {
    using B = LogSoftmaxBackwardRows;
    const Tensor g = raw::contiguous(gradient), dx = Tensor::empty(g.shape(), g.dtype());
    RowArgs b = raw::rows_along_last(g);
    b[B::kG] = raw::rows_of(g, b.cols);
    b[B::kY] = raw::rows_of(y.get("log_softmax"), b.cols);
    b[B::kDx] = raw::write_rows(dx, b.cols);
    raw::row(RowOp::kLogSoftmaxBackward, b);
    grads.add(0, dx);
  });
}

Tensor cross_entropy(Tensor logits, const Tensor& target, int64_t ignored, double label_smoothing, Place place) {
  const TraceOp op("cross_entropy");
  check(logits.rank() >= 1 && target.dtype() == DType::kInt32 && target.is_contiguous() &&
            target.numel() * logits.dim(-1) == logits.numel(),
        "cross_entropy: logits ", logits, " with targets ", target, " (int32, one a row)");
  check(label_smoothing >= 0 && label_smoothing <= 1, "cross_entropy: label smoothing ", label_smoothing);
  const Tensor dense = raw::contiguous(logits.detach());
  RowArgs r;
  r.cols = logits.dim(-1);
  r.rows = target.numel();
  r.ignored_target = ignored;
  r.label_smoothing = label_smoothing;
  check_targets(target, r.cols, ignored);
  Tensor losses = Tensor::empty({r.rows}, raw::statistics_type(logits));
  Tensor total = Tensor::empty({1}, raw::statistics_type(logits));
  const double seed = context().loss_gradient;
  const bool unshared = dense.unshared(dense.storage() == logits.storage() ? 2 : 1);
  // The gradient takes the logits' place at once, while a row is at hand.
  if (seed != 0 && unshared && recording({&logits})) {
    using F = CrossEntropyInOnePassRows;
    r.loss_gradient = seed;
    r[F::kLogits] = raw::rows_of(dense, r.cols);
    r[F::kTarget] = raw::one_per_row(target.flatten());
    r[F::kDlogits] = raw::write_rows(dense, r.cols);
    r[F::kLoss] = raw::write_one_per_row(losses);
    raw::row(RowOp::kCrossEntropyInOnePass, r);
    raw::sum_dims(total, losses, {0});
    return result_of("cross_entropy", place, total, {&logits},
                     [dx = Saved(dense), rows = r.rows, cols = r.cols, seed](const Tensor& g, Gradients& grads) {
                       const Tensor& gradient = dx.get("cross_entropy");
                       RowArgs b;
                       b.rows = rows, b.cols = cols;
                       b.loss_gradient = seed;
                       b[RescaleRows::kX] = raw::rows_of(gradient, cols);
                       b[RescaleRows::kG] = raw::one_per_row(g);
                       b[RescaleRows::kY] = raw::write_rows(gradient, cols);
                       raw::row(RowOp::kRescale, b);
                       grads.add(0, gradient);
                     });
  }
  Tensor lse = Tensor::empty({r.rows}, raw::statistics_type(logits));
  r[CrossEntropyRows::kLogits] = raw::rows_of(dense, r.cols);
  r[CrossEntropyRows::kTarget] = raw::one_per_row(target.flatten());
  r[CrossEntropyRows::kLoss] = raw::write_one_per_row(losses);
  r[CrossEntropyRows::kLse] = raw::write_one_per_row(lse);
  raw::row(RowOp::kCrossEntropy, r);
  raw::sum_dims(total, losses, {0});
  return result_of("cross_entropy", place, total, {&logits},
                   [x = Saved(dense), target = Saved(target), lse = Saved(lse), rows = r.rows, cols = r.cols, ignored,
                    label_smoothing](const Tensor& g, Gradients& grads) {
                     const bool in_place = x.unshared();  // logits are large, and nobody reads them any more
                     const Tensor& logits = x.get("cross_entropy");
                     const Tensor dx = in_place ? logits : Tensor::empty(logits.shape(), logits.dtype());
                     using B = CrossEntropyBackwardRows;
                     RowArgs b;
                     b.rows = rows, b.cols = cols;
                     b.ignored_target = ignored;
                     b.label_smoothing = label_smoothing;
                     b[B::kLogits] = raw::rows_of(logits, cols);
                     b[B::kTarget] = raw::one_per_row(target.get("cross_entropy").flatten());
                     b[B::kLse] = raw::one_per_row(lse.get("cross_entropy"));
                     b[B::kG] = raw::one_per_row(g);
                     b[B::kDlogits] = raw::write_rows(dx, cols);
                     raw::row(RowOp::kCrossEntropyBackward, b);
                     grads.add(0, dx);
                   });
}

}  // namespace lockstep
