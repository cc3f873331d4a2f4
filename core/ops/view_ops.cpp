#include <algorithm>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

Tensor reshape(const Tensor& x, const Shape& shape, Place place) {
  const TraceOp op("reshape");
  return result_of(
      "reshape", place, raw::contiguous(x.detach()).reshape(shape), {&x},
      [before = x.shape()](const Tensor& g, Gradients& grads) { grads.pass(0, raw::contiguous(g).reshape(before)); });
}

Tensor permute(const Tensor& x, const std::vector<int>& order, Place place) {
  return result_of("permute", place, x.permute(order), {&x}, [order](const Tensor& g, Gradients& grads) {
    std::vector<int> back(order.size());
    for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int>(i);
    grads.pass(0, raw::contiguous(g.permute(back)));
  });
}

Tensor transpose(const Tensor& x, int a, int b, Place place) {
  return result_of("transpose", place, x.transpose(a, b), {&x},
                   [a, b](const Tensor& g, Gradients& grads) { grads.pass(0, raw::contiguous(g.transpose(a, b))); });
}

Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end, Place place) {
  return result_of("slice", place, x.slice(dim, begin, end), {&x},
                   [shape = x.shape(), dim, begin, end](const Tensor& g, Gradients& grads) {
                     bool accumulate = false;
                     Tensor dx = grads.target(0, accumulate);
                     if (!accumulate) raw::fill(dx, 0);
                     Tensor part = dx.slice(dim, begin, end);
                     raw::add(part, part, g);
                   });
}

Tensor concat(const std::vector<Tensor>& parts, int dim, Place place) {
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

Tensor expand(const Tensor& x, const Shape& shape, Place place) {
  return result_of("expand", place, x.expand(shape), {&x}, [before = x.shape()](const Tensor& g, Gradients& grads) {
    grads.add(0, raw::sum_to(g, before, grads.dtype(0)));
  });
}

}  // namespace lockstep
