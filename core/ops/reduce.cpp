#include <algorithm>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

std::vector<int> normalised(const Tensor& x, std::vector<int> dims, const char* op) {
  if (dims.empty())
    for (int i = 0; i < x.rank(); ++i) dims.push_back(i);
  for (int& d : dims) {
    if (d < 0) d += x.rank();
    check(d >= 0 && d < x.rank(), op, ": dimension ", d, " of ", x);
  }
  std::sort(dims.begin(), dims.end());
  check(std::adjacent_find(dims.begin(), dims.end()) == dims.end(), op, ": a dimension twice, of ", x);
  return dims;
}

Tensor reduce(const char* name, const Tensor& x, const std::vector<int>& wanted, bool average, CallSite place) {
  const TraceOp op(name);
  const std::vector<int> dims = normalised(x, wanted, name);
  Shape kept, out;  // with extents of 1, and without them
  int64_t count = 1;
  for (int d = 0; d < x.rank(); ++d) {
    const bool reduced = std::binary_search(dims.begin(), dims.end(), d);
    kept.push_back(reduced ? 1 : x.shape()[d]);
    if (reduced) count *= x.shape()[d];
    else out.push_back(x.shape()[d]);
  }
  if (out.rank() == 0) out.push_back(1);
  Tensor y = Tensor::empty(out, x.dtype());
  const double scale = average ? 1.0 / static_cast<double>(count) : 1.0;
  if (average) {  // of a sum that the result's type may not hold
    const Tensor total = x.dtype() == DType::kFloat64 ? y : Tensor::empty(out);
    raw::sum_dims(total, x.detach(), dims);
    raw::pointwise(PointwiseOp::kAffine, {y}, {total}, scale);
  } else {
    raw::sum_dims(y, x.detach(), dims);
  }
  return result_of(name, place, y, {&x}, [shape = x.shape(), kept, scale](const Tensor& g, Gradients& grads) {
    Tensor dx = Tensor::empty(shape, g.dtype());
    raw::pointwise(PointwiseOp::kAffine, {dx}, {raw::contiguous(g).reshape(kept)}, scale);
    grads.add(0, dx);
  });
}

}  // namespace

Tensor sum(const Tensor& x, const std::vector<int>& dims, CallSite place) {
  return reduce("sum", x, dims, false, place);
}
Tensor mean(const Tensor& x, const std::vector<int>& dims, CallSite place) {
  return reduce("mean", x, dims, true, place);
}

Tensor max(const Tensor& x, const std::vector<int>& wanted, CallSite place) {
  const std::vector<int> dims = normalised(x, wanted, "max");
  std::vector<int> order;  // those that stay, then those that go
  Shape out;
  int64_t rows = 1, cols = 1;
  for (int d = 0; d < x.rank(); ++d)
    if (!std::binary_search(dims.begin(), dims.end(), d)) {
      order.push_back(d);
      out.push_back(x.shape()[d]);
      rows *= x.shape()[d];
    }
  for (int d : dims) {
    order.push_back(d);
    cols *= x.shape()[d];
  }
  if (out.rank() == 0) out.push_back(1);
  const Tensor flat = reshape(permute(x, order, place), {rows, cols}, place);
  return reshape(topk(flat, 1, place).values, out, place);
}

Tensor min(const Tensor& x, const std::vector<int>& dims, CallSite place) {
  return affine(max(affine(x, -1, 0, place), dims, place), -1, 0, place);
}

}  // namespace lockstep
