#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

struct DropoutKey {
  uint64_t seed, step, site;
  double p;
};

Tensor drop(const Tensor& x, const DropoutKey& key, const Tensor& samples) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  RowArgs r;
  r.cols = x.dim(-1);
  r.rows = x.numel() / r.cols;
  r[DropoutRows::kX] = raw::rows_of(x, r.cols);
  r[DropoutRows::kSamples] = raw::same_row(samples);
  r[DropoutRows::kY] = raw::write_rows(y, r.cols);
  r.drop_probability = key.p;
  r.rows_per_sample = r.rows / samples.numel();
  r.seed = key.seed, r.step = key.step, r.site = key.site;
  raw::row(RowOp::kDropout, r);
  return y;
}

}  // namespace

Tensor dropout(const Tensor& x, double p, uint64_t site, CallSite place) {
  const TraceOp op("dropout");
  check(p >= 0 && p < 1, "dropout: probability ", p);
  if (p == 0 || x.numel() == 0) return x;
  const RandomKey& random = context().random;
  const Tensor samples = raw::samples_of("dropout", x.shape());
  const DropoutKey key{random.seed, static_cast<uint64_t>(random.step), site, p};
  return result_of("dropout", place, drop(raw::contiguous(x.detach()), key, samples), {&x},
                   [key, samples = Saved(samples)](const Tensor& g, Gradients& grads) {
                     grads.add(0, drop(raw::contiguous(g), key, samples.get("dropout")));
                   });
}

namespace {
Tensor random_numbers(const char* name, RowOp kind, const Shape& shape, uint64_t site, DType type) {
  const TraceOp op(name);
  const Tensor samples = raw::samples_of(name, shape);
  Tensor y = Tensor::empty(shape, type);
  const RandomKey& random = context().random;
  RowArgs r = raw::rows_along_last(y);
  r[RandomRows::kSamples] = raw::same_row(samples);
  r[RandomRows::kY] = raw::write_rows(y, r.cols);
  r.rows_per_sample = r.rows / shape[0];
  r.seed = random.seed, r.step = static_cast<uint64_t>(random.step), r.site = site;
  raw::row(kind, r);
  return y;
}
}  // namespace

Tensor randn(const Shape& shape, uint64_t site, DType type) {
  return random_numbers("randn", RowOp::kRandn, shape, site, type);
}
Tensor uniform(const Shape& shape, uint64_t site, DType type) {
  return random_numbers("uniform", RowOp::kUniform, shape, site, type);
}

}  // namespace lockstep
