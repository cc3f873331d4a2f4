// The optimizers' updates as fused passes over a slot, and the table of them. Single source: host levels and CUDA.
#include <string_view>

#include "core/base/error.h"
#include "core/kernels/apply.h"
#include "core/kernels/args.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

// p, momentum, g -> p, momentum. Scalars: momentum, weight decay, learning-rate scale, Nesterov (0 or 1).
// Where the skip flag is set, everything stays as it was, whatever the gradient holds.
struct Sgd {
  static constexpr int kIns = 3, kOuts = 2;
  float lr, grad_scale, skip, momentum, decay;
  bool nesterov;
  HD explicit Sgd(const PointwiseArgs& a)
      : lr(a.control[UpdateControl::kLr] * static_cast<float>(a.scalars[2])),
        grad_scale(a.control[UpdateControl::kGradScale]),
        skip(a.control[UpdateControl::kSkip]),
        momentum(static_cast<float>(a.scalars[0])),
        decay(static_cast<float>(a.scalars[1])),
        nesterov(a.scalars[3] != 0) {}
  template <class T>
  HD Many<T, 2> operator()(T p, T b, T g) const {
    g = fused(T(decay), p, g * T(grad_scale));
    T velocity = fused(T(momentum), b, g);
    T step = nesterov ? fused(T(momentum), velocity, g) : velocity;
    const bool stay = skip != 0;
    return {{stay ? p : fused(-T(lr), step, p), stay ? b : velocity}};
  }
};

// The moments m and v of Adam, which AdamW and LAMB have too. Scalars: beta1, beta2, epsilon, weight decay.
struct AdamMoments {
  float root_correction, grad_scale, skip, beta1, beta2, rest1, rest2, epsilon, decay;
  // rest1 and rest2 are 1 - beta, rounded once from fp64: 1 - 0.999f differs from 0.001 by 1e-5 of itself.
  HD explicit AdamMoments(const PointwiseArgs& a)
      : root_correction(1.0f / sqrt_of(a.control[UpdateControl::kCorrection2])),
        grad_scale(a.control[UpdateControl::kGradScale]),
        skip(a.control[UpdateControl::kSkip]),
        beta1(static_cast<float>(a.scalars[0])),
        beta2(static_cast<float>(a.scalars[1])),
        rest1(static_cast<float>(1 - a.scalars[0])),
        rest2(static_cast<float>(1 - a.scalars[1])),
        epsilon(static_cast<float>(a.scalars[2])),
        decay(static_cast<float>(a.scalars[3])) {}
  template <class T>
  HD T first(T m, T g) const {
    return fused(T(rest1), g, T(beta1) * m);
  }
  template <class T>
  HD T second(T v, T g) const {
    return fused(T(rest2), g * g, T(beta2) * v);
  }
  // m over the corrected root of v.
  template <class T>
  HD T ratio(T m, T v) const {
    return m / fused(sqrt_of(v), T(root_correction), T(epsilon));
  }
};

// p, m, v, g -> p, m, v. Scalars: those of AdamMoments, learning-rate scale. Kingma and Ba, "Adam" (2015), which adds
// the decay to the gradient; decoupled: Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).
template <bool kDecoupled>
struct Adam {
  static constexpr int kIns = 4, kOuts = 3;
  AdamMoments moments;
  float keep, step_size;
  HD explicit Adam(const PointwiseArgs& a) : moments(a) {
    const float lr = a.control[UpdateControl::kLr] * static_cast<float>(a.scalars[4]);
    keep = kDecoupled ? 1.0f - lr * moments.decay : 1.0f;
    step_size = lr / a.control[UpdateControl::kCorrection1];
  }
  template <class T>
  HD Many<T, 3> operator()(T p, T m, T v, T g) const {
    g = g * T(moments.grad_scale);
    if (!kDecoupled) g = fused(T(moments.decay), p, g);
    T m1 = moments.first(m, g), v1 = moments.second(v, g);
    T p1 = fused(-T(step_size), moments.ratio(m1, v1), p * T(keep));
    const bool stay = moments.skip != 0;
    return {{stay ? p : p1, stay ? m : m1, stay ? v : v1}};
  }
};

// p, m, v, g -> m, v, direction. Scalars: those of AdamMoments. You et al., "Large batch optimization for deep
// learning" (2019).
struct LambDirection {
  static constexpr int kIns = 4, kOuts = 3;
  AdamMoments moments;
  float correction;
  HD explicit LambDirection(const PointwiseArgs& a)
      : moments(a), correction(1.0f / a.control[UpdateControl::kCorrection1]) {}
  template <class T>
  HD Many<T, 3> operator()(T p, T m, T v, T g) const {
    g = g * T(moments.grad_scale);
    T m1 = moments.first(m, g), v1 = moments.second(v, g);
    T direction = fused(T(moments.decay), p, moments.ratio(m1, v1) * T(correction));
    const bool stay = moments.skip != 0;
    return {{stay ? m : m1, stay ? v : v1, direction}};
  }
};

// Sums of squares of a parameter and of its direction -> the trust ratio: their norms' ratio, or 1 where one is zero.
struct LambRatio {
  static constexpr int kIns = 2, kOuts = 1;
  HD explicit LambRatio(const PointwiseArgs&) {}
  template <class T>
  HD T operator()(T p, T direction) const {
    return p > 0 && direction > 0 ? sqrt_of(p) / sqrt_of(direction) : T(1);
  }
};

// p, direction, trust ratio -> p. Scalars: learning-rate scale, whether the ratio counts (0 or 1).
struct Lamb {
  static constexpr int kIns = 3, kOuts = 1;
  float lr, skip;
  bool adapts;
  HD explicit Lamb(const PointwiseArgs& a)
      : lr(a.control[UpdateControl::kLr] * static_cast<float>(a.scalars[0])),
        skip(a.control[UpdateControl::kSkip]),
        adapts(a.scalars[1] != 0) {}
  template <class T>
  HD T operator()(T p, T direction, T ratio) const {
    const T step = adapts ? T(lr) * ratio : T(lr);
    return skip != 0 ? p : fused(-step, direction, p);
  }
};

// p, m, g -> p, m. Scalars: beta1, beta2, weight decay, learning-rate scale. Chen et al., "Symbolic discovery of
// optimization algorithms" (2023).
struct Lion {
  static constexpr int kIns = 3, kOuts = 2;
  float lr, keep, grad_scale, skip, beta1, beta2, rest1, rest2;
  HD explicit Lion(const PointwiseArgs& a)
      : lr(a.control[UpdateControl::kLr] * static_cast<float>(a.scalars[3])),
        grad_scale(a.control[UpdateControl::kGradScale]),
        skip(a.control[UpdateControl::kSkip]),
        beta1(static_cast<float>(a.scalars[0])),
        beta2(static_cast<float>(a.scalars[1])),
        rest1(static_cast<float>(1 - a.scalars[0])),
        rest2(static_cast<float>(1 - a.scalars[1])) {
    keep = 1.0f - lr * static_cast<float>(a.scalars[2]);
  }
  template <class T>
  HD Many<T, 2> operator()(T p, T m, T g) const {
    g = g * T(grad_scale);
    const T direction = fused(T(rest1), g, T(beta1) * m), m1 = fused(T(rest2), g, T(beta2) * m);
    const T step = direction > 0 ? T(lr) : direction < 0 ? -T(lr) : T(0);
    const bool stay = skip != 0;
    return {{stay ? p : p * T(keep) - step, stay ? m : m1}};
  }
};

// m, g -> m, and Nesterov's form of it. Scalars: momentum. Jordan et al., "Muon" (2024).
struct MuonMomentum {
  static constexpr int kIns = 2, kOuts = 2;
  float grad_scale, skip, momentum, rest;
  HD explicit MuonMomentum(const PointwiseArgs& a)
      : grad_scale(a.control[UpdateControl::kGradScale]),
        skip(a.control[UpdateControl::kSkip]),
        momentum(static_cast<float>(a.scalars[0])),
        rest(static_cast<float>(1 - a.scalars[0])) {}
  template <class T>
  HD Many<T, 2> operator()(T m, T g) const {
    const T part = T(rest) * (g * T(grad_scale));
    const T m1 = fused(T(momentum), m, part);
    return {{skip != 0 ? m : m1, fused(T(momentum), m1, part)}};
  }
};

// Sum of squares -> 1 over the norm.
struct MuonInverseNorm {
  static constexpr int kIns = 1, kOuts = 1;
  HD explicit MuonInverseNorm(const PointwiseArgs&) {}
  template <class T>
  HD T operator()(T squares) const {
    return T(1) / (sqrt_of(squares) + T(1e-7));
  }
};

// p, orthogonal matrix -> p. Scalars: weight decay, learning-rate scale, scale of the matrix.
struct Muon {
  static constexpr int kIns = 2, kOuts = 1;
  float keep, step, skip;
  HD explicit Muon(const PointwiseArgs& a) : skip(a.control[UpdateControl::kSkip]) {
    const float lr = a.control[UpdateControl::kLr] * static_cast<float>(a.scalars[1]);
    keep = 1.0f - lr * static_cast<float>(a.scalars[0]);
    step = lr * static_cast<float>(a.scalars[2]);
  }
  template <class T>
  HD T operator()(T p, T matrix) const {
    return skip != 0 ? p : fused(-T(step), matrix, p * T(keep));
  }
};

// Average, parameter -> average. The part of the way that it goes is the first correction; 1: all of it.
struct Average {
  static constexpr int kIns = 2, kOuts = 1;
  float rate, skip;
  HD explicit Average(const PointwiseArgs& a)
      : rate(a.control[UpdateControl::kCorrection1]), skip(a.control[UpdateControl::kSkip]) {}
  template <class T>
  HD T operator()(T average, T p) const {
    const T moved = rate == 1 ? p : fused(T(rate), p - average, average);
    return skip != 0 ? average : moved;
  }
};

// The same, with the new parameter a second time, as another type has it: the copy that the next pass computes with.
template <class F>
struct AndCopy {
  static constexpr int kIns = F::kIns, kOuts = F::kOuts + 1;
  F f;
  HD explicit AndCopy(const PointwiseArgs& a) : f(a) {}
  template <class T, class... Ts>
  HD Many<T, kOuts> operator()(T p, Ts... rest) const {
    const auto updated = f(p, rest...);
    Many<T, kOuts> all;
    for (int j = 0; j < F::kOuts; ++j) all.v[j] = pick<F::kOuts>(updated, j);
    all.v[F::kOuts] = all.v[0];
    return all;
  }
};

template <class F>
void update_by(Parallel& where, std::span<const PointwiseArgs> parts) {
  for (size_t i = 0, end; i < parts.size(); i = end) {
    for (end = i + 1; end < parts.size() && parts[end].outs == parts[i].outs;) ++end;
    const auto alike = parts.subspan(i, end - i);
    if (parts[i].outs > F::kOuts) for_each_of<AndCopy<F>>(where, alike);
    else for_each_of<F>(where, alike);
  }
}

struct NamedUpdate {
  std::string_view name;
  void (*run)(Parallel&, std::span<const PointwiseArgs>);
};
constexpr NamedUpdate kUpdates[] = {{"sgd", update_by<Sgd>},
                                    {"adamw", update_by<Adam<true>>},
                                    {"adam", update_by<Adam<false>>},
                                    {"lion", update_by<Lion>},
                                    {"lamb_direction", update_by<LambDirection>},
                                    {"lamb_ratio", update_by<LambRatio>},
                                    {"lamb", update_by<Lamb>},
                                    {"muon_momentum", update_by<MuonMomentum>},
                                    {"muon_inverse_norm", update_by<MuonInverseNorm>},
                                    {"muon", update_by<Muon>},
                                    {"average", for_each_of<Average>}};

}  // namespace

void update(Parallel& where, UpdateOp op, std::span<const PointwiseArgs> parts) {
  for (const NamedUpdate& u : kUpdates)
    if (u.name == op) return u.run(where, parts);
  check(false, "core/kernels/update.cpp has no update '", op, "'");
}

}  // namespace lockstep::inline LOCKSTEP_ISA
