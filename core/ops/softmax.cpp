#include <algorithm>

#include "core/base/partition.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

// A function of each row whose backward pass reads its result. `In` and `Back` name the operands of the two.
template <class In, class Back>
Tensor row_function(const char* name, RowOp forward, RowOp backward, const Tensor& x, CallSite place) {
  const TraceOp op(name);
  check(x.rank() >= 1, name, ": ", x);
  const Tensor dense = raw::contiguous(x.detach()), y = Tensor::empty(x.shape(), x.dtype());
  RowArgs r = raw::rows_along_last(x);
  r[In::kX] = raw::rows_of(dense, r.cols);
  r[In::kY] = raw::write_rows(y, r.cols);
  raw::row(forward, r);
  return result_of(name, place, y, {&x}, [y = Saved(y), name, backward](const Tensor& gradient, Gradients& grads) {
    const Tensor g = raw::contiguous(gradient), dx = Tensor::empty(g.shape(), g.dtype());
    RowArgs b = raw::rows_along_last(g);
    b[Back::kG] = raw::rows_of(g, b.cols);
    b[Back::kY] = raw::rows_of(y.get(name), b.cols);
    b[Back::kDx] = raw::write_rows(dx, b.cols);
    raw::row(backward, b);
    grads.add(0, dx);
  });
}

// Of n rows: the loss of each, and their sum.
struct Losses {
  Losses(int64_t n, DType type) : each(Tensor::empty({n}, type)), total(Tensor::empty({1}, type)) {}
  void add_up() const { raw::sum_dims(total, each, {0}); }
  Tensor each, total;
};

// The gradient takes the logits' place at once, while a row is at hand: as if the loss's gradient were `seed`.
Tensor cross_entropy_in_one_pass(const Tensor& logits, const Tensor& dense, const Tensor& target, RowArgs r,
                                 const Losses& losses, double seed, CallSite place) {
  using F = CrossEntropyInOnePassRows;
  r.loss_gradient = seed;
  r[F::kLogits] = raw::rows_of(dense, r.cols);
  r[F::kTarget] = raw::one_per_row(target.flatten());
  r[F::kDlogits] = raw::write_rows(dense, r.cols);
  r[F::kLoss] = raw::write_one_per_row(losses.each);
  raw::row(RowOp::kCrossEntropyInOnePass, r);
  losses.add_up();
  return result_of("cross_entropy", place, losses.total, {&logits},
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

// The gradient is computed in the backward pass. The result is the sum of the losses, or each of them, with a gradient
// of its own.
Tensor cross_entropy_in_two_passes(const char* name, const Tensor& logits, const Tensor& dense, const Tensor& target,
                                   RowArgs r, const Losses& losses, bool summed, CallSite place) {
  Tensor lse = Tensor::empty({r.rows}, raw::statistics_type(logits));
  RowArgs b = r;
  r[CrossEntropyRows::kLogits] = raw::rows_of(dense, r.cols);
  r[CrossEntropyRows::kTarget] = raw::one_per_row(target.flatten());
  r[CrossEntropyRows::kLoss] = raw::write_one_per_row(losses.each);
  r[CrossEntropyRows::kLse] = raw::write_one_per_row(lse);
  raw::row(RowOp::kCrossEntropy, r);
  if (summed) losses.add_up();
  return result_of(name, place, summed ? losses.total : losses.each.reshape(target.shape()), {&logits},
                   [x = Saved(dense), target = Saved(target), lse = Saved(lse), common = b, name](const Tensor& g,
                                                                                                  Gradients& grads) {
                     const bool in_place = x.unshared();  // logits are large, and nobody reads them any more
                     const Tensor& logits = x.get(name);
                     const Tensor dx = in_place ? logits : Tensor::empty(logits.shape(), logits.dtype());
                     const Tensor rows = raw::contiguous(g).flatten();
                     using B = CrossEntropyBackwardRows;
                     RowArgs b = common;
                     b[B::kLogits] = raw::rows_of(logits, b.cols);
                     b[B::kTarget] = raw::one_per_row(target.get(name).flatten());
                     b[B::kLse] = raw::one_per_row(lse.get(name));
                     b[B::kG] = raw::one_per_row(rows);
                     b[B::kDlogits] = raw::write_rows(dx, b.cols);
                     raw::row(RowOp::kCrossEntropyBackward, b);
                     grads.add(0, dx);
                   });
}

// The rows of logits, with what their losses are computed by.
RowArgs loss_rows(const char* name, const Tensor& logits, const Tensor& target, int64_t ignored,
                  double label_smoothing) {
  check(logits.rank() >= 1 && target.dtype() == DType::kInt32 && target.is_contiguous() &&
            target.numel() * logits.dim(-1) == logits.numel(),
        name, ": logits ", logits, " with targets ", target, " (int32, one a row)");
  RowArgs r;
  r.cols = logits.dim(-1);
  r.rows = target.numel();
  r.ignored_target = ignored;
  r.label_smoothing = label_smoothing;
  raw::check_indices(target, r.cols, IndexCheckArgs::Use::kTarget, ignored);
  return r;
}

}  // namespace

Tensor softmax(const Tensor& x, CallSite place) {
  return row_function<SoftmaxRows, SoftmaxBackwardRows>("softmax", RowOp::kSoftmax, RowOp::kSoftmaxBackward, x, place);
}

Tensor log_softmax(const Tensor& x, CallSite place) {
  return row_function<MapRows, LogSoftmaxBackwardRows>("log_softmax", RowOp::kLogSoftmax, RowOp::kLogSoftmaxBackward, x,
                                                       place);
}

Tensor cross_entropy(Tensor logits, const Tensor& target, int64_t ignored, double label_smoothing, CallSite place) {
  const TraceOp op("cross_entropy");
  check(label_smoothing >= 0 && label_smoothing <= 1, "cross_entropy: label smoothing ", label_smoothing);
  const RowArgs r = loss_rows("cross_entropy", logits, target, ignored, label_smoothing);
  const Tensor dense = raw::contiguous(logits.detach());
  const Losses losses(r.rows, raw::statistics_type(logits));
  const double seed = context().loss_gradient;
  const bool unshared = dense.unshared(dense.storage() == logits.storage() ? 2 : 1);
  if (seed != 0 && unshared && recording({&logits}))
    return cross_entropy_in_one_pass(logits, dense, target, r, losses, seed, place);
  return cross_entropy_in_two_passes("cross_entropy", logits, dense, target, r, losses, true, place);
}

Tensor token_losses(Tensor logits, const Tensor& target, int64_t ignored, CallSite place) {
  const char* const name = "token_losses";
  const TraceOp op(name);
  const RowArgs r = loss_rows(name, logits, target, ignored, 0);
  const Losses losses(r.rows, raw::statistics_type(logits));
  return cross_entropy_in_two_passes(name, logits, raw::contiguous(logits.detach()), target, r, losses, false, place);
}

namespace {

// Calls use(first row, rows, their logits) for so many rows at a time; the logits share memory.
template <class Use>
void for_logits(const Tensor& rows, const Tensor& weight, int64_t rows_at_once, Use use) {
  const WithMemoryUse scratch(MemoryUse::kScratch);
  const int64_t n = rows.dim(0), most = std::min(n, round_up(rows_at_once, 64));
  const Tensor memory = Tensor::empty({most, weight.dim(0)}, rows.dtype());
  for (int64_t begin = 0; begin < n; begin += most) {
    const int64_t some = std::min(most, n - begin);
    const Tensor logits = memory.slice(0, 0, some);
    raw::gemm(logits, rows.slice(0, begin, begin + some), weight.transpose(0, 1));
    use(begin, some, logits);
  }
}

// The losses of rows, or with `summed` their sum.
Tensor linear_losses(const char* name, const Tensor& x, const Tensor& weight, const Tensor& target,
                     int64_t rows_at_once, int64_t ignored, double label_smoothing, double logit_cap, bool summed,
                     CallSite place) {
  const TraceOp op(name);
  check(x.rank() >= 1 && weight.rank() == 2 && x.dim(-1) == weight.dim(1) && target.dtype() == DType::kInt32 &&
            target.is_contiguous() && target.numel() * x.dim(-1) == x.numel(),
        name, ": ", x, " with weight ", weight, " and targets ", target, " (int32, one a row)");
  check(rows_at_once > 0 && label_smoothing >= 0 && label_smoothing <= 1 && logit_cap >= 0, name, ": ", rows_at_once,
        " rows at a time, label smoothing ", label_smoothing, ", cap of logits ", logit_cap);
  const Tensor rows = raw::contiguous(x.detach()).reshape({-1, weight.dim(1)}), targets = target.flatten();
  const int64_t n = rows.dim(0), classes = weight.dim(0);
  raw::check_indices(target, classes, IndexCheckArgs::Use::kTarget, ignored);
  const DType wide = raw::statistics_type(x);
  const Losses losses(n, wide);
  const Tensor lse = Tensor::empty({n}, wide);
  RowArgs common;
  common.cols = classes;
  common.ignored_target = ignored;
  common.label_smoothing = label_smoothing;
  const auto capped = [logit_cap](const Tensor& logits) {
    if (logit_cap > 0) raw::pointwise(PointwiseOp::kSoftCap, {logits}, {logits}, logit_cap, 1 / logit_cap);
  };
  for_logits(rows, weight.detach(), rows_at_once, [&](int64_t begin, int64_t some, const Tensor& logits) {
    capped(logits);
    using F = CrossEntropyRows;
    RowArgs r = common;
    r.rows = some;
    r[F::kLogits] = raw::rows_of(logits, classes);
    r[F::kTarget] = raw::one_per_row(targets.slice(0, begin, begin + some));
    r[F::kLoss] = raw::write_one_per_row(losses.each.slice(0, begin, begin + some));
    r[F::kLse] = raw::write_one_per_row(lse.slice(0, begin, begin + some));
    raw::row(RowOp::kCrossEntropy, r);
  });
  if (summed) losses.add_up();
  return result_of(
      name, place, summed ? losses.total : losses.each.reshape(target.shape()), {&x, &weight},
      [x = Saved(rows), w = Saved(weight), target = Saved(targets), lse = Saved(lse), common, rows_at_once, name,
       capped, logit_cap](const Tensor& g, Gradients& grads) {
        const Tensor &rows = x.get(name), &weight = w.get(name), &targets = target.get(name), &sums = lse.get(name);
        bool accumulate_dx = false, accumulate_dw = false;
        const Tensor dx = grads.wanted(0) ? grads.target(0, accumulate_dx) : Tensor(),
                     dw = grads.wanted(1) ? grads.target(1, accumulate_dw) : Tensor();
        const Tensor dx_rows = dx ? dx.reshape(rows.shape()) : dx;
        const Tensor each = raw::contiguous(g).flatten();
        Tensor memory;  // of the gradients of logits that are read again
        for_logits(rows, weight, rows_at_once, [&](int64_t begin, int64_t some, const Tensor& y) {
          capped(y);
          if (logit_cap > 0 && !memory) memory = Tensor::empty(y.shape(), y.dtype());
          const Tensor logits = memory ? memory.slice(0, 0, some) : y;
          using B = CrossEntropyBackwardRows;
          const int64_t end = begin + some;
          RowArgs b = common;
          b.rows = some;
          b[B::kLogits] = raw::rows_of(y, b.cols);
          b[B::kTarget] = raw::one_per_row(targets.slice(0, begin, end));
          b[B::kLse] = raw::one_per_row(sums.slice(0, begin, end));
          b[B::kG] = raw::one_per_row(each.numel() == 1 ? each : each.slice(0, begin, end));
          b[B::kDlogits] = raw::write_rows(logits, b.cols);
          raw::row(RowOp::kCrossEntropyBackward, b);
          if (memory) raw::pointwise(PointwiseOp::kSoftCapBackward, {logits}, {logits, y}, logit_cap, 1 / logit_cap);
          if (dw) raw::gemm(dw, logits.transpose(0, 1), rows.slice(0, begin, end), {}, accumulate_dw || begin > 0);
          if (dx) raw::gemm(dx_rows.slice(0, begin, end), logits, weight, {}, accumulate_dx);
        });
      });
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& target, int64_t rows_at_once,
                            int64_t ignored, double label_smoothing, double logit_cap, CallSite place) {
  return linear_losses("linear_cross_entropy", x, weight, target, rows_at_once, ignored, label_smoothing, logit_cap,
                       true, place);
}

Tensor linear_token_losses(const Tensor& x, const Tensor& weight, const Tensor& target, int64_t rows_at_once,
                           int64_t ignored, double logit_cap, CallSite place) {
  return linear_losses("linear_token_losses", x, weight, target, rows_at_once, ignored, 0, logit_cap, false, place);
}

}  // namespace lockstep
