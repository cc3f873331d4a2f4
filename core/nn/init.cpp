#include "core/nn/init.h"

#include <cmath>

#include "core/base/hash.h"
#include "core/base/philox.h"
#include "core/kernels/math.h"

namespace lockstep {
namespace {

// Standard normal from a uniform in (-1, 1).
float normal_of(float u) {
  float w = -log_of((1.0f - u) * (1.0f + u)), p;
  if (w < 5.0f) {
    w -= 2.5f;
    p = 2.81022636e-08f;
    for (float c : {3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f, 0.00021858087f, -0.00125372503f, -0.00417768164f, 0.246640727f,
                    1.50140941f})
      p = c + p * w;
  } else {
    w = std::sqrt(w) - 3.0f;
    p = -0.000200214257f;
    for (float c : {0.000100950558f, 0.00134934322f, -0.00367342844f, 0.00573950773f, -0.0076224613f, 0.00943887047f, 1.00167406f,
                    2.83297682f})
      p = c + p * w;
  }
  return 1.41421356f * p * u;
}

}  // namespace

void fill_initial(const Init& init, uint64_t seed, std::string_view name, int64_t begin, int64_t end, float* out) {
  const float scale = static_cast<float>(init.scale);
  if (init.kind == Init::Kind::kConstant) {
    for (int64_t i = begin; i < end; ++i) out[i - begin] = scale;
    return;
  }
  const uint64_t site = hash64(name);
  for (int64_t i = begin; i < end;) {
    const Philox4 r = philox(seed, static_cast<uint64_t>(i / 4), site);  // four elements share a draw
    for (int64_t lane = i % 4; lane < 4 && i < end; ++lane, ++i) {
      const float u = 2.0f * uniform_of(r.v[lane]) - 1.0f + 0x1p-24f;  // symmetric about 0, never +-1
      out[i - begin] = scale * (init.kind == Init::Kind::kUniform ? u : normal_of(u));
    }
  }
}

}  // namespace lockstep
