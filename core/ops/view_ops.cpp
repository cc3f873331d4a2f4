#include <algorithm>
#include <numeric>
#include <utility>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

Tensor reshape(const Tensor& x, const Shape& shape, CallSite place) {
  const TraceOp op("reshape");
  return result_of(
      "reshape", place, raw::contiguous(x.detach()).reshape(shape), {&x},
      [before = x.shape()](const Tensor& g, Gradients& grads) { grads.pass(0, raw::contiguous(g).reshape(before)); });
}

Tensor permute(const Tensor& x, const std::vector<int>& order, CallSite place) {
  return result_of("permute", place, x.permute(order), {&x}, [order](const Tensor& g, Gradients& grads) {
    std::vector<int> back(order.size());
    for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int>(i);
    grads.pass(0, raw::contiguous(g.permute(back)));
  });
}

Tensor transpose(const Tensor& x, int a, int b, CallSite place) {
  return result_of("transpose", place, x.transpose(a, b), {&x},
                   [a, b](const Tensor& g, Gradients& grads) { grads.pass(0, raw::contiguous(g.transpose(a, b))); });
}

Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end, CallSite place) {
  return result_of("slice", place, x.slice(dim, begin, end), {&x},
                   [shape = x.shape(), dim, begin, end](const Tensor& g, Gradients& grads) {
                     bool accumulate = false;
                     Tensor dx = grads.target(0, accumulate);
                     if (!accumulate) raw::fill(dx, 0);
                     Tensor part = dx.slice(dim, begin, end);
                     raw::add(part, part, g);
                   });
}

Tensor Tensor::operator[](IndexRange range) const {
  check(rank() > 0, "an index of ", *this, ", which has no dimension");
  return lockstep::slice(*this, 0, range.begin, range.end);
}

Tensor Tensor::operator[](int64_t i) const {
  check(rank() > 0 && i >= 0 && i < dim(0), "element ", i, " of ", *this);
  Shape rest;
  for (int d = 1; d < rank(); ++d) rest.push_back(dim(d));
  return lockstep::reshape((*this)[IndexRange{i, i + 1}], rest.rank() > 0 ? rest : Shape{1});
}

Tensor concat(const std::vector<Tensor>& parts, int dim, CallSite place) {
  const TraceOp op("concat");
  check(!parts.empty(), "concat of no tensors");
  Shape shape = parts[0].shape();
  if (dim < 0) dim += shape.rank();
  check(dim >= 0 && dim < shape.rank(), "concat: dimension ", dim, " of ", parts[0]);
  std::vector<int64_t> begins{0};
  std::vector<const Tensor*> inputs;
  for (const Tensor& part : parts) {
    Shape expected = parts[0].shape();
    if (part.rank() == expected.rank()) expected[dim] = part.dim(dim);
    check(part.shape() == expected && part.dtype() == parts[0].dtype(), "concat along dimension ", dim, ": ", part,
          " beside ", parts[0]);
    begins.push_back(begins.back() + part.dim(dim));
    inputs.push_back(&part);
  }
  shape[dim] = begins.back();
  const Tensor y = Tensor::empty(shape, parts[0].dtype());
  for (size_t i = 0; i < parts.size(); ++i)
    if (begins[i] < begins[i + 1]) raw::copy(y.slice(dim, begins[i], begins[i + 1]), parts[i].detach());
  return result_of("concat", place, y, inputs, [begins, dim](const Tensor& g, Gradients& grads) {
    for (size_t i = 0; i + 1 < begins.size(); ++i)
      if (grads.wanted(static_cast<int>(i)))
        grads.pass(static_cast<int>(i), raw::contiguous(g.slice(dim, begins[i], begins[i + 1])));
  });
}

Tensor stack(const std::vector<Tensor>& parts, int dim, CallSite place) {
  check(!parts.empty(), "stack of no tensors");
  Shape shape = parts[0].shape();
  if (dim < 0) dim += shape.rank() + 1;
  check(dim >= 0 && dim <= shape.rank(), "stack: new dimension ", dim, " of ", parts[0]);
  shape.push_back(1);
  for (int d = shape.rank() - 1; d > dim; --d) std::swap(shape[d], shape[d - 1]);
  std::vector<Tensor> rows;
  for (const Tensor& part : parts) {
    check(part.shape() == parts[0].shape(), "stack: ", part, " beside ", parts[0]);
    rows.push_back(reshape(part, shape, place));
  }
  return concat(rows, dim, place);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& extents, int dim, CallSite place) {
  if (dim < 0) dim += x.rank();
  check(dim >= 0 && dim < x.rank() && std::accumulate(extents.begin(), extents.end(), int64_t(0)) == x.dim(dim),
        "split: ", x, " along dimension ", dim, " into parts that do not add up to it");
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (int64_t extent : extents) {
    parts.push_back(slice(x, dim, begin, begin + extent, place));
    begin += extent;
  }
  return parts;
}

Tensor pad(const Tensor& x, const std::vector<Padding>& around, double value, CallSite place) {
  const TraceOp op("pad");
  check(static_cast<int>(around.size()) == x.rank() &&
            std::all_of(around.begin(), around.end(), [](const Padding& p) { return p.before >= 0 && p.after >= 0; }),
        "pad: ", x, " by ", around.size(), " pairs (one for each dimension, not negative)");
  Shape shape = x.shape();
  for (int d = 0; d < x.rank(); ++d)
    shape[d] += around[static_cast<size_t>(d)].before + around[static_cast<size_t>(d)].after;
  const auto inner = [around, extents = x.shape()](Tensor t) {
    for (int d = 0; d < t.rank(); ++d) {
      const int64_t begin = around[static_cast<size_t>(d)].before;
      t = t.slice(d, begin, begin + extents[d]);
    }
    return t;
  };
  const Tensor y = Tensor::full(shape, value, x.dtype());
  raw::copy(inner(y), x.detach());
  return result_of("pad", place, y, {&x},
                   [inner](const Tensor& g, Gradients& grads) { grads.pass(0, raw::contiguous(inner(g))); });
}

Tensor expand(const Tensor& x, const Shape& shape, CallSite place) {
  return result_of("expand", place, x.expand(shape), {&x}, [before = x.shape()](const Tensor& g, Gradients& grads) {
    grads.add(0, raw::sum_to(g, before, grads.dtype(0)));
  });
}

}  // namespace lockstep
