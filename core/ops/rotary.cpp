#include <algorithm>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

// `a` has the sizes and frequencies.
Tensor rotated(RotaryArgs a, const Tensor& starts, const Tensor& x, bool back) {
  const Tensor dense = raw::contiguous(x.detach()), y = Tensor::empty(x.shape(), x.dtype());
  a.x = dense.read(), a.y = y.write(), a.dtype = x.dtype(), a.back = back;
  if (starts) a.starts = static_cast<const int32_t*>(starts.read());
  raw::launch([](Parallel& p, const RotaryArgs& args) { kernels(p).rotary(p, args); }, a);
  return y;
}

}  // namespace

Tensor rotary(const Tensor& x, const std::vector<double>& frequencies, const Tensor& starts, CallSite place) {
  const TraceOp op("rotary");
  const auto pairs = static_cast<int64_t>(frequencies.size());
  check(x.rank() == 4 && x.dim(3) % 2 == 0 && x.dim(3) >= 2 * pairs && x.dim(3) <= 2 * RotaryArgs::kMostPairs,
        "rotary: ", x, " by ", pairs,
        " frequencies; it takes [batch, time, heads, dim], dim even, at least 2 * frequencies and at most ",
        2 * RotaryArgs::kMostPairs);
  check(!starts || (starts.dtype() == DType::kInt32 && starts.shape() == Shape{x.dim(0)}), "rotary: starts ", starts,
        " for ", x, "; they are int32 [batch]");
  RotaryArgs a;
  a.batch = x.dim(0), a.time = x.dim(1), a.heads = x.dim(2), a.dim = x.dim(3), a.pairs = pairs;
  std::copy(frequencies.begin(), frequencies.end(), a.frequencies);
  return result_of("rotary", place, rotated(a, starts, x, false), {&x},
                   [a, starts](const Tensor& g, Gradients& grads) { grads.add(0, rotated(a, starts, g, true)); });
}

}  // namespace lockstep
