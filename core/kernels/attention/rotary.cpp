// Rotary position embedding: the rotations of a position are computed once, in fp64, for all its heads.
#include "core/kernels/args.h"
#include "core/kernels/parallel.h"
#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

template <class T>
void rotary_in(Parallel& parallel, const RotaryArgs& a) {
  const int64_t half = a.pairs, of_position = a.heads * a.dim;
  auto body = [&](int64_t begin, int64_t end) {
    T sine[RotaryArgs::kMostPairs], cosine[RotaryArgs::kMostPairs];
    T x[2 * RotaryArgs::kMostPairs], y[2 * RotaryArgs::kMostPairs];
    for (int64_t t = begin; t < end; ++t) {
      int64_t turned = -1;  // the position whose rotations are at hand
      for (int64_t b = 0; b < a.batch; ++b) {
        const int64_t position = a.position(b, t);
        for (int64_t i = 0; position != turned && i < half; ++i) {
          const SinCos turn = sin_cos_of(static_cast<double>(position) * a.frequencies[i]);
          sine[i] = static_cast<T>(a.back ? -turn.sin : turn.sin);
          cosine[i] = static_cast<T>(turn.cos);
        }
        turned = position;
        for (int64_t h = 0; h < a.heads; ++h) {
          const int64_t at = (b * a.time + t) * of_position + h * a.dim;
          load_run<T>(a.x, a.dtype, at, 1, a.dim, x);
          for (int64_t i = 0; i < half; ++i) {
            y[i] = x[i] * cosine[i] - x[half + i] * sine[i];
            y[half + i] = x[half + i] * cosine[i] + x[i] * sine[i];
          }
          for (int64_t i = 2 * half; i < a.dim; ++i) y[i] = x[i];
          store_run<T>(a.y, a.dtype, at, 1, a.dim, y);
        }
      }
    }
  };
  parallel.run(a.time, 16384 / (a.batch * of_position + 1) + 1, body);
}

}  // namespace

void rotary(Parallel& parallel, const RotaryArgs& a) {
  a.dtype == DType::kFloat64 ? rotary_in<double>(parallel, a) : rotary_in<float>(parallel, a);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
