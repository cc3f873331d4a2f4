// The pointwise passes of batch norm. Single source: host levels and CUDA.
#include "core/kernels/batch_norm.h"

#include "core/kernels/apply.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

struct Coefficients {
  static constexpr int kIns = 4, kOuts = 4;
  double count, epsilon;
  HD explicit Coefficients(const PointwiseArgs& a) : count(a.scalars[0]), epsilon(a.scalars[1]) {}
  template <class T>
  HD Many<T, 4> operator()(T mean, T m2, T weight, T bias) const {
    const T rstd = T(1) / sqrt_of(m2 / static_cast<T>(count) + static_cast<T>(epsilon));
    const T scale = rstd * weight;
    return {{rstd, scale, fused(-mean, scale, bias), count > 1 ? m2 / static_cast<T>(count - 1) : m2}};
  }
};

template <bool kAdd, bool kRelu>
struct Forward {
  static constexpr int kIns = kAdd ? 4 : 3, kOuts = 1;
  HD explicit Forward(const PointwiseArgs&) {}
  template <class T>
  HD T operator()(T x, T scale, T shift, T z = T(0)) const {
    T y = fused(x, scale, shift);
    if (kAdd) y = y + z;
    return kRelu && y < T(0) ? T(0) : y;  // NaN passes
  }
};

struct GradientCoefficients {
  static constexpr int kIns = 4, kOuts = 2;
  double share;
  HD explicit GradientCoefficients(const PointwiseArgs& a) : share(a.scalars[0]) {}
  template <class T>
  HD Many<T, 2> operator()(T sum, T sum_normalised, T scale, T rstd) const {
    const T part = -static_cast<T>(share) * scale;
    return {{part * rstd * sum_normalised, part * sum}};
  }
};

struct Backward {
  static constexpr int kIns = 6, kOuts = 1;
  HD explicit Backward(const PointwiseArgs&) {}
  template <class T>
  HD T operator()(T g, T x, T scale, T mean, T slope, T offset) const {
    return fused(x - mean, slope, fused(g, scale, offset));
  }
};

struct BackwardRelu {
  static constexpr int kIns = 7, kOuts = 1;
  HD explicit BackwardRelu(const PointwiseArgs&) {}
  template <class T>
  HD T operator()(T g, T x, T scale, T shift, T mean, T slope, T offset) const {
    const T passed = fused(x, scale, shift) > T(0) ? g : T(0);
    return fused(x - mean, slope, fused(passed, scale, offset));
  }
};

}  // namespace

void batch_norm(Parallel& where, BatchNormPass pass, const PointwiseArgs& a) {
  switch (pass) {
    case BatchNormPass::kCoefficients: return for_each<Coefficients>(where, a);
    case BatchNormPass::kForward: return for_each<Forward<false, false>>(where, a);
    case BatchNormPass::kForwardRelu: return for_each<Forward<false, true>>(where, a);
    case BatchNormPass::kForwardAdd: return for_each<Forward<true, false>>(where, a);
    case BatchNormPass::kForwardAddRelu: return for_each<Forward<true, true>>(where, a);
    case BatchNormPass::kGradientCoefficients: return for_each<GradientCoefficients>(where, a);
    case BatchNormPass::kBackward: return for_each<Backward>(where, a);
    case BatchNormPass::kBackwardRelu: return for_each<BackwardRelu>(where, a);
  }
}

}  // namespace lockstep::inline LOCKSTEP_ISA
