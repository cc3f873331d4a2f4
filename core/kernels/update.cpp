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

// p, m, v, g -> p, m, v. Scalars: beta1, beta2, epsilon, weight decay, learning-rate scale. Kingma and Ba, "Adam"
// (2015), which adds the decay to the gradient; decoupled: Loshchilov and Hutter, "Decoupled weight decay
// regularization" (2019).
template <bool kDecoupled>
struct Adam {
  static constexpr int kIns = 4, kOuts = 3;
  float keep, step_size, root_correction, grad_scale, skip, beta1, beta2, rest1, rest2, epsilon, decay;
  // rest1 and rest2 are 1 - beta, rounded once from fp64: 1 - 0.999f differs from 0.001 by 1e-5 of itself.
  HD explicit Adam(const PointwiseArgs& a)
      : grad_scale(a.control[UpdateControl::kGradScale]),
        skip(a.control[UpdateControl::kSkip]),
        beta1(static_cast<float>(a.scalars[0])),
        beta2(static_cast<float>(a.scalars[1])),
        rest1(static_cast<float>(1 - a.scalars[0])),
        rest2(static_cast<float>(1 - a.scalars[1])),
        epsilon(static_cast<float>(a.scalars[2])),
        decay(static_cast<float>(a.scalars[3])) {
    const float lr = a.control[UpdateControl::kLr] * static_cast<float>(a.scalars[4]);
    keep = kDecoupled ? 1.0f - lr * decay : 1.0f;
    step_size = lr / a.control[UpdateControl::kCorrection1];
    root_correction = 1.0f / sqrt_of(a.control[UpdateControl::kCorrection2]);
  }
  template <class T>
  HD Many<T, 3> operator()(T p, T m, T v, T g) const {
    g = g * T(grad_scale);
    if (!kDecoupled) g = fused(T(decay), p, g);
    T m1 = fused(T(rest1), g, T(beta1) * m);
    T v1 = fused(T(rest2), g * g, T(beta2) * v);
    T p1 = fused(-T(step_size), m1 / fused(sqrt_of(v1), T(root_correction), T(epsilon)), p * T(keep));
    const bool stay = skip != 0;
    return {{stay ? p : p1, stay ? m : m1, stay ? v : v1}};
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

// The same, with the new parameter a second time, as another type has it: the copy that the next pass computes with.
template <class F>
struct AndCopy {
  static constexpr int kIns = F::kIns, kOuts = F::kOuts + 1;
  F f;
  HD explicit AndCopy(const PointwiseArgs& a) : f(a) {}
  template <class T, class... Ts>
  HD Many<T, kOuts> operator()(T p, Ts... rest) const {
    const Many<T, F::kOuts> updated = f(p, rest...);
    Many<T, kOuts> all;
    for (int j = 0; j < F::kOuts; ++j) all.v[j] = updated.v[j];
    all.v[F::kOuts] = updated.v[0];
    return all;
  }
};

template <class F>
void update_by(Parallel& where, const PointwiseArgs& a) {
  if (a.outs > F::kOuts) for_each<AndCopy<F>>(where, a);
  else for_each<F>(where, a);
}

struct NamedUpdate {
  std::string_view name;
  void (*run)(Parallel&, const PointwiseArgs&);
};
constexpr NamedUpdate kUpdates[] = {{"sgd", update_by<Sgd>},
                                    {"adamw", update_by<Adam<true>>},
                                    {"adam", update_by<Adam<false>>},
                                    {"lion", update_by<Lion>}};

}  // namespace

void update(Parallel& where, UpdateOp op, const PointwiseArgs& a) {
  for (const NamedUpdate& u : kUpdates)
    if (u.name == op) return u.run(where, a);
  check(false, "core/kernels/update.cpp has no update '", op, "'");
}

}  // namespace lockstep::inline LOCKSTEP_ISA
