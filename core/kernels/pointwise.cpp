// The pointwise functors, each written once, and the switch that runs them. Single source: host levels and CUDA.
#include "core/kernels/pointwise.h"
#include "core/kernels/apply.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

template <int Ins>
struct Plain {
  static constexpr int kIns = Ins, kOuts = 1;
  HD explicit Plain(const PointwiseArgs&) {}
};
template <int Ins>
struct WithScalars {
  static constexpr int kIns = Ins, kOuts = 1;
  double s0, s1;
  HD explicit WithScalars(const PointwiseArgs& a) : s0(a.scalars[0]), s1(a.scalars[1]) {}
};

struct Copy : Plain<1> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T x) const {
    return x;
  }
};
struct Fill : WithScalars<0> {
  using WithScalars::WithScalars;
  template <class T>
  HD T operator()(T) const {
    return static_cast<T>(s0);
  }
};
struct Add : Plain<2> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T a, T b) const {
    return a + b;
  }
};
struct Sub : Plain<2> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T a, T b) const {
    return a - b;
  }
};
struct Mul : Plain<2> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T a, T b) const {
    return a * b;
  }
};
struct Div : Plain<2> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T a, T b) const {
    return a / b;
  }
};
struct DivBackward : Plain<3> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T g, T a, T b) const {
    return -(g * a) / (b * b);
  }
};
struct AddScaled : WithScalars<2> {
  using WithScalars::WithScalars;
  template <class T>
  HD T operator()(T a, T b) const {
    return fused(static_cast<T>(s0), b, a);
  }
};
struct Affine : WithScalars<1> {
  using WithScalars::WithScalars;
  template <class T>
  HD T operator()(T x) const {
    return static_cast<T>(s0) * x + static_cast<T>(s1);
  }
};
struct Exp : Plain<1> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T x) const {
    return exp_of(x);
  }
};
struct Log : Plain<1> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T x) const {
    return log_of(x);
  }
};
struct Sqrt : Plain<1> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T x) const {
    return sqrt_of(x);
  }
};
struct SqrtBackward : Plain<2> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T g, T y) const {
    return g / (T(2) * y);
  }
};
struct Tanh : Plain<1> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T x) const {
    return tanh_of(x);
  }
};
struct TanhBackward : Plain<2> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T g, T y) const {
    return g * (T(1) - y * y);
  }
};
struct Relu : Plain<1> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T x) const {
    return x < T(0) ? T(0) : x;
  }  // NaN passes
};
struct ReluBackward : Plain<2> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T g, T x) const {
    return x > T(0) ? g : T(0);
  }
};
struct Gelu : Plain<1> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T x) const {
    return gelu_of(x);
  }
};
struct GeluBackward : Plain<2> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T g, T x) const {
    return g * gelu_gradient(x);
  }
};
struct Silu : Plain<1> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T x) const {
    return silu_of(x);
  }
};
struct SiluBackward : Plain<2> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T g, T x) const {
    return g * silu_gradient(x);
  }
};
struct SiluMul : Plain<2> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T a, T b) const {
    return silu_of(a) * b;
  }
};
struct SiluMulBackward : Plain<3> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T g, T a, T b) const {
    return g * b * silu_gradient(a);
  }
};
struct Square : Plain<1> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T x) const {
    return x * x;
  }
};

}  // namespace

void pointwise(Parallel& where, PointwiseOp op, const PointwiseArgs& a) {
  switch (op) {
    case PointwiseOp::kCopy: return for_each<Copy>(where, a);
    case PointwiseOp::kFill: return for_each<Fill>(where, a);
    case PointwiseOp::kAdd: return for_each<Add>(where, a);
    case PointwiseOp::kSub: return for_each<Sub>(where, a);
    case PointwiseOp::kMul: return for_each<Mul>(where, a);
    case PointwiseOp::kDiv: return for_each<Div>(where, a);
    case PointwiseOp::kDivBackward: return for_each<DivBackward>(where, a);
    case PointwiseOp::kAddScaled: return for_each<AddScaled>(where, a);
    case PointwiseOp::kAffine: return for_each<Affine>(where, a);
    case PointwiseOp::kExp: return for_each<Exp>(where, a);
    case PointwiseOp::kLog: return for_each<Log>(where, a);
    case PointwiseOp::kSqrt: return for_each<Sqrt>(where, a);
    case PointwiseOp::kSqrtBackward: return for_each<SqrtBackward>(where, a);
    case PointwiseOp::kTanh: return for_each<Tanh>(where, a);
    case PointwiseOp::kTanhBackward: return for_each<TanhBackward>(where, a);
    case PointwiseOp::kRelu: return for_each<Relu>(where, a);
    case PointwiseOp::kReluBackward: return for_each<ReluBackward>(where, a);
    case PointwiseOp::kGelu: return for_each<Gelu>(where, a);
    case PointwiseOp::kGeluBackward: return for_each<GeluBackward>(where, a);
    case PointwiseOp::kSilu: return for_each<Silu>(where, a);
    case PointwiseOp::kSiluBackward: return for_each<SiluBackward>(where, a);
    case PointwiseOp::kSiluMul: return for_each<SiluMul>(where, a);
    case PointwiseOp::kSiluMulBackward: return for_each<SiluMulBackward>(where, a);
    case PointwiseOp::kSquare: return for_each<Square>(where, a);
  }
}

}  // namespace lockstep::inline LOCKSTEP_ISA
