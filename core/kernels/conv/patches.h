// Output pixels of a convolution and the patches of input that they see, as matrices for products. Plain functions,
// compiled once per instruction-set level.
#pragma once

#include <type_traits>

#include "core/kernels/gemm/gemm_serial.h"

namespace lockstep::inline LOCKSTEP_ISA {

constexpr int kPatches = 3;  // scratch slot

constexpr int64_t kPatchBytes = 512 << 10;  // of the second-level cache

// Output pixels are counted over all images: pixel p is of image p / (out_height * out_width).
inline int64_t pixels_of(const ConvArgs& a) { return a.images * a.out_height * a.out_width; }

// The number of pixels whose patches, of this many columns, are held at once: `most`, or a multiple of 64, so that it
// does not matter for products that sum over pixels.
template <class Patch>
int64_t pixels_at_once(int64_t columns, int64_t most) {
  const int64_t fit = kPatchBytes / (columns * static_cast<int64_t>(sizeof(Patch))) / 64 * 64,
                some = fit > 0 ? fit : 64;
  return some < most ? some : most;
}

// Patches are held in the type T of the sums, or, for products of bf16, as they are stored.
template <class Patch>
constexpr DType kPatchType = std::is_same_v<Patch, uint16_t> ? DType::kBFloat16 : kTypeOf<Patch>;
template <class Patch>
Matrix patch_matrix(Patch* data, int64_t cols) {
  return {data, kPatchType<Patch>, cols, 1, 0};
}
template <class Patch>
void copy_run(const void* source, DType dtype, int64_t offset, int64_t n, Patch* out) {
  if constexpr (std::is_same_v<Patch, uint16_t>)
    memcpy(out, static_cast<const uint16_t*>(source) + offset, static_cast<size_t>(n) * sizeof(uint16_t));
  else if (dtype == kTypeOf<Patch> && n < 16)  // a call costs more
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<const Patch*>(source)[offset + i];
  else load_run<Patch>(source, dtype, offset, 1, n, out);
}

// Calls use(image, oy, ox) for the output pixels [p0, p1).
template <class F>
void for_pixels(const ConvArgs& a, int64_t p0, int64_t p1, F use) {
  const int64_t of_image = a.out_height * a.out_width;
  int64_t image = p0 / of_image, oy = p0 % of_image / a.out_width, ox = p0 % a.out_width;
  for (int64_t p = p0; p < p1; ++p) {
    use(image, oy, ox);
    if (++ox < a.out_width) continue;
    ox = 0;
    if (++oy == a.out_height) oy = 0, ++image;
  }
}

}  // namespace lockstep::inline LOCKSTEP_ISA
