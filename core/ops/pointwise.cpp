#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

Tensor like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype()); }

Tensor apply(PointwiseOp op, const Tensor& x, double s0 = 0, double s1 = 0) {
  Tensor y = like(x);
  raw::pointwise(op, {y}, {x}, s0, s1);
  return y;
}

Tensor apply2(PointwiseOp op, const Tensor& a, const Tensor& b, const char* name, double s0 = 0, double s1 = 0) {
  Tensor y = Tensor::empty(broadcast_shapes(a.shape(), b.shape(), name), a.dtype());
  raw::pointwise(op, {y}, {a, b}, s0, s1);
  return y;
}

Tensor compared(Comparison relation, const Tensor& a, const Tensor& b) {
  return apply2(PointwiseOp::kCompare, a, b, "compare", static_cast<double>(relation));
}

// g where the mask, of its shape or one that broadcasts to it, is as `wanted`; else 0.
Tensor masked(const Tensor& mask, const Tensor& g, bool wanted) {
  const Tensor dx = like(g), zero = Tensor::zeros({1}, g.dtype());
  if (wanted) raw::pointwise(PointwiseOp::kWhere, {dx}, {mask, g, zero});
  else raw::pointwise(PointwiseOp::kWhere, {dx}, {mask, zero, g});
  return dx;
}

// Gives input i the gradient g, summed over what broadcasting repeated.
void add_reduced(Gradients& grads, int i, const Tensor& g, const Shape& shape) {
  if (g.shape() == shape) grads.add(i, g);
  else grads.add(i, raw::sum_to(g, shape, grads.dtype(i)));
}
void pass_reduced(Gradients& grads, int i, const Tensor& g, const Shape& shape) {
  if (g.shape() == shape) grads.pass(i, g);
  else grads.add(i, raw::sum_to(g, shape, grads.dtype(i)));
}

// a where x > 0, below * a where x < 0, at_zero * a where x is 0.
Tensor by_parts(const char* name, const Tensor& x, double below, double at_zero, CallSite place) {
  const TraceOp op(name);
  return result_of(name, place, apply2(PointwiseOp::kByParts, x, x, name, below, at_zero), {&x},
                   [x = Saved(x), name, below, at_zero](const Tensor& g, Gradients& grads) {
                     grads.add(0, apply2(PointwiseOp::kByParts, g, x.get(name), name, below, at_zero));
                   });
}

// The larger where sign is 1, the smaller where it is -1.
Tensor extreme(const char* name, const Tensor& a, const Tensor& b, double sign, CallSite place) {
  const TraceOp op(name);
  return result_of(name, place, apply2(PointwiseOp::kMaximum, a, b, name, sign), {&a, &b},
                   [a = Saved(a), b = Saved(b), name, sign](const Tensor& g, Gradients& grads) {
                     const Tensor &x = a.get(name), &y = b.get(name);
                     const Tensor mask = compared(sign > 0 ? Comparison::kGreaterEqual : Comparison::kLessEqual, x, y);
                     if (grads.wanted(0)) add_reduced(grads, 0, masked(mask, g, true), x.shape());
                     if (grads.wanted(1)) add_reduced(grads, 1, masked(mask, g, false), y.shape());
                   });
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, CallSite place) {
  const TraceOp op("add");
  return result_of("add", place, apply2(PointwiseOp::kAdd, a, b, "add"), {&a, &b},
                   [sa = a.shape(), sb = b.shape()](const Tensor& g, Gradients& grads) {
                     if (grads.wanted(0)) pass_reduced(grads, 0, g, sa);
                     if (grads.wanted(1)) pass_reduced(grads, 1, g, sb);
                   });
}

Tensor sub(const Tensor& a, const Tensor& b, CallSite place) {
  const TraceOp op("sub");
  return result_of("sub", place, apply2(PointwiseOp::kSub, a, b, "sub"), {&a, &b},
                   [sa = a.shape(), sb = b.shape()](const Tensor& g, Gradients& grads) {
                     if (grads.wanted(0)) pass_reduced(grads, 0, g, sa);
                     if (grads.wanted(1)) add_reduced(grads, 1, apply(PointwiseOp::kAffine, g, -1), sb);
                   });
}

Tensor mul(const Tensor& a, const Tensor& b, CallSite place) {
  const TraceOp op("mul");
  return result_of("mul", place, apply2(PointwiseOp::kMul, a, b, "mul"), {&a, &b},
                   [a = Saved(a), b = Saved(b)](const Tensor& g, Gradients& grads) {
                     const Tensor &x = a.get("mul"), &y = b.get("mul");
                     if (grads.wanted(0)) add_reduced(grads, 0, apply2(PointwiseOp::kMul, g, y, "mul"), x.shape());
                     if (grads.wanted(1)) add_reduced(grads, 1, apply2(PointwiseOp::kMul, g, x, "mul"), y.shape());
                   });
}

Tensor operator/(const Tensor& x, double s) { return div(x, Tensor::full({1}, s, x.dtype())); }
Tensor operator/(double s, const Tensor& x) { return div(Tensor::full({1}, s, x.dtype()), x); }

Tensor div(const Tensor& a, const Tensor& b, CallSite place) {
  const TraceOp op("div");
  return result_of("div", place, apply2(PointwiseOp::kDiv, a, b, "div"), {&a, &b},
                   [a = Saved(a), b = Saved(b)](const Tensor& g, Gradients& grads) {
                     const Tensor &x = a.get("div"), &y = b.get("div");
                     if (grads.wanted(0)) add_reduced(grads, 0, apply2(PointwiseOp::kDiv, g, y, "div"), x.shape());
                     if (grads.wanted(1)) {
                       Tensor dy = like(g);
                       raw::pointwise(PointwiseOp::kDivBackward, {dy}, {g, x, y});
                       add_reduced(grads, 1, dy, y.shape());
                     }
                   });
}

Tensor affine(const Tensor& x, double scale, double shift, CallSite place) {
  const TraceOp op("affine");
  return result_of("affine", place, apply(PointwiseOp::kAffine, x, scale, shift), {&x},
                   [scale](const Tensor& g, Gradients& grads) { grads.add(0, apply(PointwiseOp::kAffine, g, scale)); });
}

Tensor unary(PointwiseOp forward, const Tensor& x, CallSite place) {
  const auto f = std::find_if(std::begin(kUnaryFunctions), std::end(kUnaryFunctions),
                              [&](const UnaryFunction& each) { return each.forward == forward; });
  check(f != std::end(kUnaryFunctions), "operation ", static_cast<int>(forward), " is no function of one input");
  const TraceOp op(f->name);
  const Tensor y = apply(forward, x);
  return result_of(
      f->name, place, y, {&x},
      [saved = Saved(f->saves == UnaryFunction::Saves::kInput ? x : y), f](const Tensor& g, Gradients& grads) {
        Tensor dx = like(g);
        raw::pointwise(f->backward, {dx}, {g, saved.get(f->name)});
        grads.add(0, dx);
      });
}

Tensor soft_cap(const Tensor& x, double cap, CallSite place) {
  const TraceOp op("soft_cap");
  check(cap > 0, "soft_cap: cap ", cap);
  const Tensor y = apply(PointwiseOp::kSoftCap, x, cap, 1 / cap);
  return result_of("soft_cap", place, y, {&x}, [y = Saved(y), cap](const Tensor& g, Gradients& grads) {
    const Tensor dx = like(g);
    raw::pointwise(PointwiseOp::kSoftCapBackward, {dx}, {g, y.get("soft_cap")}, cap, 1 / cap);
    grads.add(0, dx);
  });
}

Tensor silu_mul(const Tensor& a, const Tensor& b, CallSite place) {
  const TraceOp op("silu_mul");
  check(a.shape() == b.shape(), "silu_mul: ", a, " and ", b, " (of equal shapes)");
  return result_of("silu_mul", place, apply2(PointwiseOp::kSiluMul, a, b, "silu_mul"), {&a, &b},
                   [a = Saved(a), b = Saved(b)](const Tensor& g, Gradients& grads) {
                     const Tensor &x = a.get("silu_mul"), &y = b.get("silu_mul");
                     if (grads.wanted(0)) {
                       Tensor da = like(g);
                       raw::pointwise(PointwiseOp::kSiluMulBackward, {da}, {g, x, y});
                       grads.add(0, da);
                     }
                     if (grads.wanted(1)) grads.add(1, apply2(PointwiseOp::kSiluMul, x, g, "silu_mul"));
                   });
}

Tensor leaky_relu(const Tensor& x, double slope, CallSite place) {
  return by_parts("leaky_relu", x, slope, slope, place);
}

Tensor abs(const Tensor& x, CallSite place) { return by_parts("abs", x, -1, 0, place); }

Tensor pow(const Tensor& x, double exponent, CallSite place) {
  const TraceOp op("pow");
  check(std::abs(exponent) < 1e9, "pow: exponent ", exponent);
  return result_of("pow", place, apply(PointwiseOp::kPower, x, exponent, 1), {&x},
                   [x = Saved(x), exponent](const Tensor& g, Gradients& grads) {
                     const Tensor& base = x.get("pow");
                     const Tensor slope = Tensor::empty(base.shape(), raw::statistics_type(base)), dx = like(g);
                     if (exponent == 0) raw::fill(slope, 0);
                     else raw::pointwise(PointwiseOp::kPower, {slope}, {base}, exponent - 1, exponent);
                     raw::pointwise(PointwiseOp::kMul, {dx}, {g, slope});
                     grads.add(0, dx);
                   });
}

Tensor clamp(const Tensor& x, double low, double high, CallSite place) {
  const TraceOp op("clamp");
  check(low <= high, "clamp: from ", low, " to ", high);
  const Tensor y = apply(PointwiseOp::kClamp, x, low, high);
  return result_of("clamp", place, y, {&x}, [x = Saved(x), y = Saved(y)](const Tensor& g, Gradients& grads) {
    grads.add(0, masked(compared(Comparison::kEqual, x.get("clamp"), y.get("clamp")), g, true));
  });
}

Tensor maximum(const Tensor& a, const Tensor& b, CallSite place) { return extreme("maximum", a, b, 1, place); }
Tensor minimum(const Tensor& a, const Tensor& b, CallSite place) { return extreme("minimum", a, b, -1, place); }

Tensor compare(Comparison relation, const Tensor& a, const Tensor& b) {
  const TraceOp op("compare");
  return compared(relation, a, b);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b, CallSite place) {
  const TraceOp op("where");
  const Shape of_values = broadcast_shapes(a.shape(), b.shape(), "where");
  const Tensor y = Tensor::empty(broadcast_shapes(condition.shape(), of_values, "where"), a.dtype());
  raw::pointwise(PointwiseOp::kWhere, {y}, {condition, a, b});
  return result_of("where", place, y, {&a, &b},
                   [c = Saved(condition), sa = a.shape(), sb = b.shape()](const Tensor& g, Gradients& grads) {
                     const Tensor& mask = c.get("where");
                     if (grads.wanted(0)) add_reduced(grads, 0, masked(mask, g, true), sa);
                     if (grads.wanted(1)) add_reduced(grads, 1, masked(mask, g, false), sb);
                   });
}

Tensor cast(const Tensor& x, DType dtype, CallSite place) {
  const TraceOp op("cast");
  if (x.dtype() == dtype) return x;
  return result_of("cast", place, raw::cast(x.detach(), dtype), {&x},
                   [](const Tensor& g, Gradients& grads) { grads.pass(0, g); });
}

void add_in_place(const Tensor& a, const Tensor& b) {
  const TraceOp op("add_in_place");
  raw::add(a, a, b);
}

}  // namespace lockstep
