// Recurrent cells. Single source: host levels and CUDA.
#include "core/kernels/cell.h"

#include "core/kernels/apply.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int64_t kCellGrain = 2048;

struct Lstm {
  static constexpr int kIns = 5, kOuts = 2;
  static constexpr int64_t kGrain = kCellGrain;
  HD explicit Lstm(const PointwiseArgs&) {}
  template <class T>
  HD Many<T, 2> operator()(T i, T f, T g, T o, T before) const {
    const T c = fused(sigmoid_of(f), before, sigmoid_of(i) * tanh_of(g));
    return {{c, sigmoid_of(o) * tanh_of(c)}};
  }
};

struct LstmBackward {
  static constexpr int kIns = 7, kOuts = 5;
  static constexpr int64_t kGrain = kCellGrain;
  HD explicit LstmBackward(const PointwiseArgs&) {}
  template <class T>
  HD Many<T, 5> operator()(T pre_i, T pre_f, T pre_g, T pre_o, T before, T dh, T dc_after) const {
    const T i = sigmoid_of(pre_i), f = sigmoid_of(pre_f), g = tanh_of(pre_g), o = sigmoid_of(pre_o);
    const T squashed = tanh_of(fused(f, before, i * g));
    const T dc = fused(dh * o, T(1) - squashed * squashed, dc_after);
    return {{dc * g * (i * (T(1) - i)), dc * before * (f * (T(1) - f)), dc * i * (T(1) - g * g),
             dh * squashed * (o * (T(1) - o)), dc * f}};
  }
};

struct Gru {
  static constexpr int kIns = 5, kOuts = 1;
  static constexpr int64_t kGrain = kCellGrain;
  HD explicit Gru(const PointwiseArgs&) {}
  template <class T>
  HD T operator()(T r, T z, T of_x, T of_h, T before) const {
    const T n = tanh_of(fused(sigmoid_of(r), of_h, of_x));
    return fused(sigmoid_of(z), before - n, n);
  }
};

struct GruBackward {
  static constexpr int kIns = 6, kOuts = 5;
  static constexpr int64_t kGrain = kCellGrain;
  HD explicit GruBackward(const PointwiseArgs&) {}
  template <class T>
  HD Many<T, 5> operator()(T pre_r, T pre_z, T of_x, T of_h, T before, T dh) const {
    const T r = sigmoid_of(pre_r), z = sigmoid_of(pre_z), n = tanh_of(fused(r, of_h, of_x));
    const T dn = dh * (T(1) - z) * (T(1) - n * n);
    return {{dn * of_h * (r * (T(1) - r)), dh * (before - n) * (z * (T(1) - z)), dn, dn * r, dh * z}};
  }
};

}  // namespace

void cell(Parallel& where, CellPass pass, const PointwiseArgs& a) {
  switch (pass) {
    case CellPass::kLstm: return for_each<Lstm>(where, a);
    case CellPass::kLstmBackward: return for_each<LstmBackward>(where, a);
    case CellPass::kGru: return for_each<Gru>(where, a);
    case CellPass::kGruBackward: return for_each<GruBackward>(where, a);
  }
}

}  // namespace lockstep::inline LOCKSTEP_ISA
