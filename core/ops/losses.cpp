// Losses beside cross-entropy (softmax.cpp): compositions, whose backward passes are those of their parts.
#include <cmath>
#include <limits>
#include <numeric>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

Tensor wide(const Tensor& x, CallSite place) { return cast(x, raw::statistics_type(x), place); }

void check_pair(const char* name, const Tensor& x, const Tensor& target) {
  check(x.shape() == target.shape(), name, ": ", x, " with targets ", target, " (of equal shapes)");
}

// The losses of elements, each multiplied by its weight.
Tensor weighted(const char* name, const Tensor& losses, const Tensor& weights, CallSite place) {
  if (!weights) return losses;
  check(weights.shape() == losses.shape(), name, ": losses ", losses, " with weights ", weights, " (of equal shapes)");
  return mul(losses, cast(weights.detach(), losses.dtype(), place), place);
}

// Targets as a column [N, 1]: 1 where they count, and their index, 0 where they are ignored.
struct Counted {
  Tensor counts, index;
};
Counted counted(const Tensor& target, int64_t ignored, CallSite place) {
  const Tensor none = Tensor::full({1}, static_cast<double>(ignored), DType::kInt32);
  const Tensor column = raw::contiguous(target).reshape({target.numel(), 1}), counts = ne(column, none);
  return {counts, where(counts, column, Tensor::zeros({1}, DType::kInt32))};
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, const Tensor& weights, CallSite place) {
  check_pair("mse_loss", x, target);
  const Tensor distance = sub(wide(x, place), wide(target, place), place);
  return sum(weighted("mse_loss", mul(distance, distance, place), weights, place), {}, place);
}

// With c = min(d, delta) both cases are c (d - c / 2).
Tensor huber_loss(const Tensor& x, const Tensor& target, double delta, const Tensor& weights, CallSite place) {
  check_pair("huber_loss", x, target);
  check(delta > 0, "huber_loss: delta ", delta);
  const Tensor distance = abs(sub(wide(x, place), wide(target, place), place), place);
  const Tensor near = clamp(distance, 0, delta, place);
  const Tensor losses = mul(near, sub(distance, affine(near, 0.5, 0, place), place), place);
  return sum(weighted("huber_loss", losses, weights, place), {}, place);
}

// (1 - target) logits + softplus(-logits): no difference of large numbers where the prediction is right.
Tensor bce_with_logits(const Tensor& logits, const Tensor& target, CallSite place) {
  check_pair("bce_with_logits", logits, target);
  const Tensor x = wide(logits, place), rest = affine(wide(target, place), -1, 1, place);
  return sum(add(mul(rest, x, place), softplus(affine(x, -1, 0, place), place), place), {}, place);
}

Tensor mixed_cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& other, const Tensor& share,
                           double label_smoothing, CallSite place) {
  check(logits.rank() == 2 && target.shape() == Shape{logits.dim(0)} && other.shape() == target.shape() &&
            share.shape() == target.shape(),
        "mixed_cross_entropy: logits ", logits, " with targets ", target, ", ", other, " and shares ", share);
  const Tensor log_p = log_softmax(wide(logits, place), place);
  const auto of = [&](const Tensor& labels, const Tensor& weight) {
    const Shape column{labels.numel(), 1};
    const Tensor at = gather(log_p, raw::contiguous(labels).reshape(column), place);
    return sum(mul(at, reshape(cast(weight, log_p.dtype(), place), column, place), place), {}, place);
  };
  const Tensor both = add(of(target, affine(share, -1, 1, place)), of(other, share), place);
  if (label_smoothing == 0) return affine(both, -1, 0, place);
  const Tensor all = affine(sum(log_p, {}, place), -label_smoothing / static_cast<double>(logits.dim(1)), 0, place);
  return add(affine(both, label_smoothing - 1, 0, place), all, place);
}

Tensor weighted_cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& of_classes, int64_t ignored,
                              double label_smoothing, const Tensor& of_rows, CallSite place) {
  check(logits.rank() >= 1 && target.dtype() == DType::kInt32 && target.numel() * logits.dim(-1) == logits.numel() &&
            (!of_classes || of_classes.shape() == Shape{logits.dim(-1)}),
        "weighted_cross_entropy: logits ", logits, " with targets ", target, " (int32, one a row) and weights ",
        of_classes);
  check(!of_rows || of_rows.shape() == target.shape(), "weighted_cross_entropy: targets ", target, " with weights ",
        of_rows, " (of equal shapes)");
  const int64_t count = target.numel(), classes = logits.dim(-1);
  const Counted rows = counted(target, ignored, place);
  const Tensor log_p = log_softmax(reshape(wide(logits, place), {count, classes}, place), place);
  Tensor loss = gather(log_p, rows.index, place);
  if (label_smoothing > 0)
    loss = add(affine(loss, 1 - label_smoothing, 0, place),
               affine(reshape(sum(log_p, {1}, place), {count, 1}, place),
                      label_smoothing / static_cast<double>(classes), 0, place),
               place);
  Tensor factor = raw::cast(rows.counts, loss.dtype());
  const auto take = [&](const Tensor& weights) {
    factor = mul(cast(reshape(weights, {count, 1}, place), loss.dtype(), place), factor, place);
  };
  if (of_classes) take(embedding(reshape(of_classes.detach(), {classes, 1}, place), rows.index, place));
  if (of_rows) take(of_rows.detach());
  return affine(sum(mul(loss, factor, place), {}, place), -1, 0, place);
}

// The logarithm is kept finite, so that a target of 0 gives 0.
Tensor kl_div(const Tensor& log_p, const Tensor& target, CallSite place) {
  check_pair("kl_div", log_p, target);
  const Tensor q = wide(target, place);
  const Tensor log_q = log(clamp(q, static_cast<double>(std::numeric_limits<float>::min()), INFINITY, place), place);
  return sum(mul(q, sub(log_q, wide(log_p, place), place), place), {}, place);
}

// With z the logit of the wrong answer, 1 - p = sigmoid(z) and -log(p) = softplus(z).
Tensor binary_focal_loss(const Tensor& logits, const Tensor& target, double alpha, double gamma, CallSite place) {
  check_pair("binary_focal_loss", logits, target);
  const Tensor t = wide(target, place), z = mul(wide(logits, place), affine(t, -2, 1, place), place);
  const Tensor weight = affine(t, 2 * alpha - 1, 1 - alpha, place);
  const Tensor loss = mul(pow(sigmoid(z, place), gamma, place), softplus(z, place), place);
  return sum(mul(weight, loss, place), {}, place);
}

Tensor focal_loss(const Tensor& logits, const Tensor& target, double gamma, int64_t ignored, CallSite place) {
  check(logits.rank() >= 1 && target.dtype() == DType::kInt32 && target.numel() * logits.dim(-1) == logits.numel(),
        "focal_loss: logits ", logits, " with targets ", target, " (int32, one a row)");
  const Counted targets = counted(target, ignored, place);
  const Tensor rows = reshape(wide(logits, place), {target.numel(), logits.dim(-1)}, place);
  const Tensor log_p = gather(log_softmax(rows, place), targets.index, place);
  const Tensor loss = mul(pow(affine(exp(log_p, place), -1, 1, place), gamma, place), log_p, place);
  return affine(sum(mul(loss, raw::cast(targets.counts, loss.dtype()), place), {}, place), -1, 0, place);
}

Tensor dice_loss(const Tensor& p, const Tensor& target, double smooth, CallSite place) {
  check_pair("dice_loss", p, target);
  check(p.rank() >= 2, "dice_loss: ", p, " (samples first)");
  std::vector<int> dims(static_cast<size_t>(p.rank()) - 1);
  std::iota(dims.begin(), dims.end(), 1);
  const Tensor x = wide(p, place), t = wide(target, place);
  const Tensor overlap = affine(sum(mul(x, t, place), dims, place), 2, smooth, place);
  const Tensor all = affine(add(sum(x, dims, place), sum(t, dims, place), place), 1, smooth, place);
  return sum(affine(div(overlap, all, place), -1, 1, place), {}, place);
}

}  // namespace lockstep
