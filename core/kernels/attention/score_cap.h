// Capped scores of attention (Gemma 2): c * tanh(scale * q.k / c), which stay between -c and c. Plain functions,
// compiled once per instruction-set level.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/math.h"

namespace lockstep::inline LOCKSTEP_ISA {

// Of arguments whose score_cap is above 0.
template <class T>
struct ScoreCap {
  HD explicit ScoreCap(const AttentionArgs& a)
      : cap(static_cast<T>(a.score_cap)), factor(static_cast<T>(a.scale / a.score_cap)) {}
  HD T tanh_at(T product) const { return tanh_of(product * factor); }
  // The score of a product q.k.
  HD T operator()(T product) const { return cap * tanh_at(product); }

  T cap, factor;
};

// What products, or the capped scores that took their place, are still multiplied by.
template <class T>
HD T scale_of_scores(const AttentionArgs& a) {
  return a.score_cap > 0 ? T(1) : static_cast<T>(a.scale);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
