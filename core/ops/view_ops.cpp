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

Tensor expand(const Tensor& x, const Shape& shape, Place place) {
  return result_of("expand", place, x.expand(shape), {&x}, [before = x.shape()](const Tensor& g, Gradients& grads) {
    grads.add(0, raw::sum_to(g, before, grads.dtype(0)));
  });
}

}  // namespace lockstep
