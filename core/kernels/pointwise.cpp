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
struct Sigmoid : Plain<1> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T x) const {
    return sigmoid_of(x);
  }
};
struct SigmoidBackward : Plain<2> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T g, T y) const {
    return g * y * (T(1) - y);
  }
};
struct Softplus : Plain<1> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T x) const {
    return softplus_of(x);
  }
};
struct SoftplusBackward : Plain<2> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T g, T x) const {
    return g * sigmoid_of(x);
  }
};
struct GeluErf : Plain<1> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T x) const {
    return x * normal_cdf(x);
  }
};
struct GeluErfBackward : Plain<2> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T g, T x) const {
    return g * gelu_erf_gradient(x);
  }
};
struct ByParts : WithScalars<2> {
  using WithScalars::WithScalars;
  template <class T>
  HD T operator()(T a, T x) const {
    const T below = static_cast<T>(s0), otherwise = static_cast<T>(s1);
    return x > T(0) ? a : (x < T(0) ? below : otherwise) * a;
  }
};
struct Clamp : WithScalars<1> {
  using WithScalars::WithScalars;
  template <class T>
  HD T operator()(T x) const {
    const T low = static_cast<T>(s0), high = static_cast<T>(s1), above = x < low ? low : x;
    return above > high ? high : above;
  }  // NaN passes
};
// Small whole exponents by multiplication, others as e^(s0 log x), of the absolute value where s0 is whole. Choices
// that all elements share are masks: branches would keep the loop from being vectorised.
struct Power : WithScalars<1> {
  uint32_t factor[6], inverse, by_logarithm;  // all bits, or none
  float base_sign, result_sign;               // of negative x
  HD explicit Power(const PointwiseArgs& a) : WithScalars(a) {
    const int64_t n = static_cast<int64_t>(s0), times = n < 0 ? -n : n;
    const bool whole = static_cast<double>(n) == s0;
    for (int bit = 0; bit < 6; ++bit) factor[bit] = times >> bit & 1 ? ~0u : 0u;
    inverse = n < 0 ? ~0u : 0u;
    by_logarithm = whole && times < 64 ? 0u : ~0u;
    base_sign = whole ? -1.0f : 1.0f;
    result_sign = whole && n % 2 != 0 ? -1.0f : 1.0f;
  }
  HD static float chosen(uint32_t mask, float a, float b) {
    return float_of((bits_of(a) & mask) | (bits_of(b) & ~mask));
  }
  HD float operator()(float x) const {
    const float base = x < 0 ? base_sign * x : x;
    const float x2 = base * base, x4 = x2 * x2, x8 = x4 * x4, x16 = x8 * x8, x32 = x16 * x16;
    float product = chosen(factor[0], base, 1.0f);
    product *= chosen(factor[1], x2, 1.0f);
    product *= chosen(factor[2], x4, 1.0f);
    product *= chosen(factor[3], x8, 1.0f);
    product *= chosen(factor[4], x16, 1.0f);
    product *= chosen(factor[5], x32, 1.0f);
    const float whole = chosen(inverse, 1.0f / product, product);
    const float y = chosen(by_logarithm, exp_of(static_cast<float>(s0) * log_of(base)), whole);
    return static_cast<float>(s1) * (x < 0 ? result_sign * y : y);
  }
  HD double operator()(double x) const { return s1 * pow(x, s0); }
};
struct Maximum : WithScalars<2> {
  using WithScalars::WithScalars;
  template <class T>
  HD T operator()(T a, T b) const {
    const T sign = static_cast<T>(s0);
    return a != a || sign * a >= sign * b ? a : b;
  }
};
struct Compare : Plain<2> {
  int relations;
  HD explicit Compare(const PointwiseArgs& a) : Plain(a), relations(static_cast<int>(a.scalars[0])) {}
  template <class T>
  HD T operator()(T a, T b) const {
    const int relation = a < b ? 1 : a == b ? 2 : a > b ? 4 : 8;
    return relation & relations ? T(1) : T(0);
  }
};
struct Where : Plain<3> {
  using Plain::Plain;
  template <class T>
  HD T operator()(T c, T a, T b) const {
    return c != T(0) ? a : b;
  }
};
struct SoftCap : WithScalars<1> {
  using WithScalars::WithScalars;
  template <class T>
  HD T operator()(T x) const {
    return static_cast<T>(s0) * tanh_of(static_cast<T>(s1) * x);
  }
};
struct SoftCapBackward : WithScalars<2> {
  using WithScalars::WithScalars;
  template <class T>
  HD T operator()(T g, T y) const {
    const T t = static_cast<T>(s1) * y;
    return g * (T(1) - t * t);
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
    case PointwiseOp::kSigmoid: return for_each<Sigmoid>(where, a);
    case PointwiseOp::kSigmoidBackward: return for_each<SigmoidBackward>(where, a);
    case PointwiseOp::kSoftplus: return for_each<Softplus>(where, a);
    case PointwiseOp::kSoftplusBackward: return for_each<SoftplusBackward>(where, a);
    case PointwiseOp::kGeluErf: return for_each<GeluErf>(where, a);
    case PointwiseOp::kGeluErfBackward: return for_each<GeluErfBackward>(where, a);
    case PointwiseOp::kByParts: return for_each<ByParts>(where, a);
    case PointwiseOp::kClamp: return for_each<Clamp>(where, a);
    case PointwiseOp::kPower: return for_each<Power>(where, a);
    case PointwiseOp::kMaximum: return for_each<Maximum>(where, a);
    case PointwiseOp::kCompare: return for_each<Compare>(where, a);
    case PointwiseOp::kWhere: return for_each<Where>(where, a);
    case PointwiseOp::kSoftCap: return for_each<SoftCap>(where, a);
    case PointwiseOp::kSoftCapBackward: return for_each<SoftCapBackward>(where, a);
  }
}

}  // namespace lockstep::inline LOCKSTEP_ISA
