#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kMostCols = int64_t(1) << 24;  // whole numbers that fp32 holds

// The shape of `index` is that of x but for its last extent.
void check_index(const char* name, const Tensor& x, const Tensor& index) {
  Shape expected = x.shape();
  if (x.rank() >= 1 && index.rank() == x.rank()) expected[x.rank() - 1] = index.dim(-1);
  check(x.rank() >= 1 && is_floating(x.dtype()) && index.dtype() == DType::kInt32 && index.shape() == expected, name,
        ": ", x, " by index ", index, " (int32, of the same extents but the last)");
  raw::check_indices(index, x.dim(-1), IndexCheckArgs::Use::kElement);
}

Tensor pick(const Tensor& x, const Tensor& index) {
  const Tensor dense = raw::contiguous(x.detach()), y = Tensor::empty(index.shape(), x.dtype());
  RowArgs r = raw::rows_along_last(index);
  r[PickRows::kX] = raw::rows_of(dense, x.dim(-1));
  r[PickRows::kIndex] = raw::rows_of(index, r.cols);
  r[PickRows::kY] = raw::write_rows(y, r.cols);
  raw::row(RowOp::kPick, r);
  return y;
}

// In `total`, of fp32 or fp64 whatever the type of `source`: many may go to one element.
void add_at(const Tensor& total, const Tensor& index, const Tensor& source) {
  const Tensor dense = raw::contiguous(source.detach());
  RowArgs r = raw::rows_along_last(index);
  r[AddAtRows::kX] = raw::rows_of(dense, r.cols);
  r[AddAtRows::kIndex] = raw::rows_of(index, r.cols);
  r[AddAtRows::kY] = raw::write_rows(total, total.dim(-1));
  raw::row(RowOp::kAddAt, r);
}

// Of an index that is known to be right.
Tensor gathered(const char* name, const Tensor& x, const Tensor& index, CallSite place) {
  return result_of(name, place, pick(x, index), {&x},
                   [index = Saved(index), shape = x.shape(), name](const Tensor& g, Gradients& grads) {
                     const Tensor dx = Tensor::zeros(shape, raw::statistics_type(g));
                     add_at(dx, index.get(name), g);
                     grads.add(0, dx);
                   });
}

Tensor top_indices(const char* name, const Tensor& x, int64_t k) {
  check(x.rank() >= 1 && k >= 1 && k <= x.dim(-1) && x.dim(-1) <= kMostCols, name, ": ", k,
        " of the last dimension of ", x, " (at most ", kMostCols, " elements)");
  const Tensor dense = raw::contiguous(x.detach());
  Shape shape = x.shape();
  shape[x.rank() - 1] = k;
  const Tensor index = Tensor::empty(shape, DType::kInt32);
  RowArgs r = raw::rows_along_last(x);
  r.top = k;
  r[TopIndicesRows::kX] = raw::rows_of(dense, r.cols);
  r[TopIndicesRows::kIndex] = raw::write_rows(index, k);
  raw::row(RowOp::kTopIndices, r);
  return index;
}

Tensor cumulated(const Tensor& x, bool backwards) {
  const Tensor dense = raw::contiguous(x.detach()), y = Tensor::empty(x.shape(), x.dtype());
  RowArgs r = raw::rows_along_last(x);
  r.backwards = backwards;
  r[MapRows::kX] = raw::rows_of(dense, r.cols);
  r[MapRows::kY] = raw::write_rows(y, r.cols);
  raw::row(RowOp::kCumulate, r);
  return y;
}

}  // namespace

TopK topk(const Tensor& x, int64_t k, CallSite place) {
  const TraceOp op("topk");
  const Tensor index = top_indices("topk", x, k);
  return {gathered("topk", x, index, place), index};
}

Tensor argmax(const Tensor& x) {
  const TraceOp op("argmax");
  Shape shape;
  for (int d = 0; d + 1 < x.rank(); ++d) shape.push_back(x.shape()[d]);
  if (shape.rank() == 0) shape.push_back(1);
  return top_indices("argmax", x, 1).reshape(shape);
}

Tensor cumsum(const Tensor& x, CallSite place) {
  const TraceOp op("cumsum");
  check(x.rank() >= 1, "cumsum: ", x);
  return result_of("cumsum", place, cumulated(x, false), {&x},
                   [](const Tensor& g, Gradients& grads) { grads.add(0, cumulated(g, true)); });
}

Tensor gather(const Tensor& x, const Tensor& index, CallSite place) {
  const TraceOp op("gather");
  const Tensor dense = raw::contiguous(index);
  check_index("gather", x, dense);
  return gathered("gather", x, dense, place);
}

Tensor scatter_add(const Tensor& x, const Tensor& index, const Tensor& source, CallSite place) {
  const TraceOp op("scatter_add");
  const Tensor dense = raw::contiguous(index);
  check_index("scatter_add", x, dense);
  check(source.shape() == index.shape() && is_floating(source.dtype()), "scatter_add: source ", source, " by index ",
        index, " (of equal shapes)");
  const Tensor total = Tensor::empty(x.shape(), raw::statistics_type(x));
  raw::copy(total, x.detach());
  add_at(total, dense, source);
  return result_of("scatter_add", place, raw::cast(total, x.dtype()), {&x, &source},
                   [index = Saved(dense)](const Tensor& g, Gradients& grads) {
                     if (grads.wanted(0)) grads.pass(0, g);
                     if (grads.wanted(1)) grads.add(1, pick(g, index.get("scatter_add")));
                   });
}

}  // namespace lockstep
