// Initial values: counter-based random numbers, uniform or normal, 64 elements at a time.
#include "core/base/philox.h"
#include "core/kernels/args.h"
#include "core/kernels/math.h"
#include "core/kernels/parallel.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kGroups = 16;  // draws of four elements in one block

// Standard normal from a uniform in (-1, 1), by the inverse of the error function (Giles, "Approximating the erfinv function", GPU
// Computing Gems 2011). Without fused arithmetic, so that every level gives the same bits.
[[gnu::always_inline]] inline float normal_of(float u) {
  const float w = -log_of<false>((1.0f - u) * (1.0f + u));
  const float near = w - 2.5f, far = sqrt_of(w) - 3.0f;
  float p = 2.81022636e-08f;
  p = 3.43273939e-07f + p * near;
  p = -3.5233877e-06f + p * near;
  p = -4.39150654e-06f + p * near;
  p = 0.00021858087f + p * near;
  p = -0.00125372503f + p * near;
  p = -0.00417768164f + p * near;
  p = 0.246640727f + p * near;
  p = 1.50140941f + p * near;
  float q = -0.000200214257f;
  q = 0.000100950558f + q * far;
  q = 0.00134934322f + q * far;
  q = -0.00367342844f + q * far;
  q = 0.00573950773f + q * far;
  q = -0.0076224613f + q * far;
  q = 0.00943887047f + q * far;
  q = 1.00167406f + q * far;
  q = 2.83297682f + q * far;
  return 1.41421356f * (w < 5.0f ? p : q) * u;
}

void block(const InitialArgs& a, int64_t index, float* values) {
  uint32_t bits[4][kGroups];
  for (int g = 0; g < kGroups; ++g) {
    const Philox4 r = philox(a.seed, static_cast<uint64_t>(index * kGroups + g), a.site);
    for (int j = 0; j < 4; ++j) bits[j][g] = r.v[j];
  }
  for (int j = 0; j < 4; ++j)
    for (int g = 0; g < kGroups; ++g) {
      const float u = 2.0f * uniform_of(bits[j][g]) - 1.0f + 0x1p-24f;  // symmetric about 0, never +-1
      values[4 * g + j] = a.scale * (a.normal ? normal_of(u) : u);
    }
}

}  // namespace

void initial(Parallel& parallel, const InitialArgs& a) {
  constexpr int64_t kBlock = 4 * kGroups;
  const int64_t first = a.begin / kBlock, last = (a.end + kBlock - 1) / kBlock;
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t b = first + begin; b < first + end; ++b) {
      alignas(64) float values[kBlock];
      block(a, b, values);
      const int64_t from = b * kBlock < a.begin ? a.begin : b * kBlock, to = (b + 1) * kBlock > a.end ? a.end : (b + 1) * kBlock;
      for (int64_t i = from; i < to; ++i) a.out[i - a.begin] = values[i - b * kBlock];
    }
  };
  parallel.run(last - first, 64, body);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
