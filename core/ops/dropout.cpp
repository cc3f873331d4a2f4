#include "core/device/graph.h"
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

Tensor dropout(const Tensor& x, double p, uint64_t site, Place place) {
  const TraceOp op("dropout");
  check(p >= 0 && p < 1, "dropout: probability ", p);
  if (p == 0 || x.numel() == 0) return x;
  const RandomKey& random = context().random;
  check(random.samples != nullptr && static_cast<int64_t>(random.samples->size()) == x.dim(0), "dropout of ", x,
        ": its first dimension must be the ",
        random.samples ? static_cast<int64_t>(random.samples->size()) : int64_t(0),
        " samples of the micro-batch (WithRandom)");
  not_in_a_graph("dropout, which draws other numbers at every step,");
  const Tensor samples = Tensor::of(*random.samples, {x.dim(0)});
  const DropoutKey key{random.seed, static_cast<uint64_t>(random.step), site, p};
  return result_of("dropout", place, drop(raw::contiguous(x.detach()), key, samples), {&x},
                   [key, samples = Saved(samples)](const Tensor& g, Gradients& grads) {
                     grads.add(0, drop(raw::contiguous(g), key, samples.get("dropout")));
                   });
}

}  // namespace lockstep
