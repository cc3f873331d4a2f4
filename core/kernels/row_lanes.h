// What the softmax of attention and its gradient compute of rows of scores, the same at each level with fused
// multiply-add: exponentials, and sums and maxima in 16 lanes, of which lane l takes elements l, l + 16, ...; then the
// lanes are joined in a fixed tree. Plain functions, compiled once per instruction-set level;
// attention.cpp alone includes this.
#pragma once

#include <limits>
#include <type_traits>

#include "core/kernels/simd.h"
#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {  // one file includes this: what is called once is compiled into its caller

constexpr int64_t kLanes = 16;

int64_t whole_lanes(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

constexpr auto kAdd = [](auto x, auto y) { return x + y; };
constexpr auto kLarger = [](auto x, auto y) { return y > x ? y : x; };

// kLanes numbers of a row, in vectors of this level.
template <class T>
struct LaneVectors {
  using V = typename Simd<T>::V;
  static constexpr int kEach = Simd<T>::kLanes, kParts = kLanes / kEach;
  V part[kParts];

  static LaneVectors load(const T* p) {
    LaneVectors out;
#pragma GCC unroll 8
    for (int i = 0; i < kParts; ++i) out.part[i] = Simd<T>::load(p + i * kEach);
    return out;
  }
  static LaneVectors all(T x) {
    LaneVectors out;
#pragma GCC unroll 8
    for (int i = 0; i < kParts; ++i) out.part[i] = Simd<T>::all(x);
    return out;
  }
  void store(T* p) const {
#pragma GCC unroll 8
    for (int i = 0; i < kParts; ++i) Simd<T>::store(p + i * kEach, part[i]);
  }
  // The lanes in one vector: i joined with i + 8 and so on, while that joins vectors with vectors.
  template <class Join>
  V narrowed(const Join& with) const {
    LaneVectors left = *this;
#pragma GCC unroll 4
    for (int half = kParts / 2; half > 0; half /= 2)
#pragma GCC unroll 4
      for (int i = 0; i < half; ++i) left.part[i] = with(left.part[i], left.part[i + half]);
    return left.part[0];
  }
  template <class F>
  void apply(const F& f) {
#pragma GCC unroll 8
    for (int i = 0; i < kParts; ++i) part[i] = f(part[i]);
  }
  template <class Join>
  void join(const Join& with, const LaneVectors& other) {
#pragma GCC unroll 8
    for (int i = 0; i < kParts; ++i) part[i] = with(part[i], other.part[i]);
  }
};

// The rest of the tree for as many rows as a vector has lanes n: i with i + n / 2, and so on. Lane r of the result is
// of row r. Rows are joined two by two, so that a step takes two shuffles for two rows; destroys `rows`.
template <class T, class Join>
typename Simd<T>::V fold_rows(typename Simd<T>::V* rows, const Join& join) {
  constexpr int n = Simd<T>::kLanes;
  using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  typedef Index Indices __attribute__((vector_size(sizeof(typename Simd<T>::V))));
#pragma GCC unroll 4
  for (int half = n / 2; half > 0; half /= 2) {
    Indices low{}, high{};
#pragma GCC unroll 16
    for (int x = 0; x < n; ++x) {
      const int y = x % (n / 2);
      low[x] = (x < n / 2 ? 0 : n) + y / half * 2 * half + y % half;
      high[x] = low[x] + half;
    }
#pragma GCC unroll 8
    for (int r = 0; r < half; ++r)
      rows[r] = join(__builtin_shuffle(rows[2 * r], rows[2 * r + 1], low),
                     __builtin_shuffle(rows[2 * r], rows[2 * r + 1], high));
  }
  return rows[0];
}

// out[r] = all lanes of row r, which lanes_of(r) gives, joined in a fixed tree: i with i + 8, with i + 4, with i + 2
// and with i + 1; for r below `count`. `out` has room for whole vectors.
template <class T, class LanesOf, class Join>
void fold_each(int64_t count, const LanesOf& lanes_of, const Join& join, T* out) {
  constexpr int64_t n = Simd<T>::kLanes;
  for (int64_t r0 = 0; r0 < count; r0 += n) {
    typename Simd<T>::V rows[n];
    for (int64_t r = 0; r < n; ++r) rows[r] = r0 + r < count ? lanes_of(r0 + r).narrowed(join) : Simd<T>::all(T(0));
    Simd<T>::store(out + r0, fold_rows<T>(rows, join));
  }
}

// fused() of core/kernels/math.h, with its bits.
template <class T>
typename Simd<T>::V fused_vectors(typename Simd<T>::V a, typename Simd<T>::V b, typename Simd<T>::V c) {
  if constexpr (std::is_same_v<T, float>) return Simd<T>::mul_add(a, b, c);
  else return a * b + c;
}

// exp_of() of core/kernels/math.h, with its bits (levels_test). Of numbers that are not above 0, 2^n is one factor, and
// nothing saturates.
template <bool kAboveZero>
typename Simd<float>::V exp_of_vector(typename Simd<float>::V x) {
  using S = Simd<float>;
  [[maybe_unused]] typedef int32_t Bits __attribute__((vector_size(sizeof(S::V))));
  const auto least = S::all(-87.33654f), most = S::all(88.72283f), magic = S::all(12582912.0f);
#if defined(__AVX512F__)
  auto clamped = _mm512_maskz_max_ps(0xFFFF, least, x);  // x where that is NaN
  if (kAboveZero) clamped = _mm512_maskz_min_ps(0xFFFF, most, clamped);
#else
  auto clamped = x < least ? least : x;
  if (kAboveZero) clamped = clamped > most ? most : clamped;
#endif
  const auto t = S::mul_add(clamped, S::all(1.44269504088896341f), magic);
  const auto n = t - magic;
  auto r = S::mul_add(n, S::all(-0.693145752f), clamped);
  r = S::mul_add(n, S::all(-1.42860677e-6f), r);
  auto p = S::all(1.9875691500e-4f);
  p = S::mul_add(p, r, S::all(1.3981999507e-3f));
  p = S::mul_add(p, r, S::all(8.3334519073e-3f));
  p = S::mul_add(p, r, S::all(4.1665795894e-2f));
  p = S::mul_add(p, r, S::all(1.6666665459e-1f));
  p = S::mul_add(p, r, S::all(5.0000001201e-1f));
  const auto e = S::mul_add(p, r * r, r) + S::all(1.0f);  // NaN of NaN
#if defined(__AVX512F__)
  auto y = _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), e, n);
#else
  const auto power_of_two = [](Bits n) { return reinterpret_cast<typename S::V>((n + 127) << 23); };
  const Bits k = reinterpret_cast<Bits>(t) - 0x4B400000, half = k >> 1;
  auto y = kAboveZero ? e * power_of_two(half) * power_of_two(k - half) : e * power_of_two(k);
  y = x < least ? S::all(0) : y;
#endif
  if (kAboveZero) y = x > most ? S::all(std::numeric_limits<float>::infinity()) : y;
  return y;
}
template <bool kAboveZero>
typename Simd<double>::V exp_of_vector(typename Simd<double>::V x) {
  for (int i = 0; i < Simd<double>::kLanes; ++i) x[i] = exp_of(x[i]);
  return x;
}

// s[from .. whole_lanes(from)) = x, in one pass.
template <class T>
void fill_lanes(T* s, int64_t from, T x) {
  using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  typedef Bits Vector __attribute__((vector_size(sizeof(T) * Simd<T>::kLanes), aligned(sizeof(T)), may_alias));
  static constexpr Bits kKept[2 * kLanes] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  const int64_t rest = from % kLanes;
  if (rest == 0) return;
  T* const last = s + from - rest;
  const Bits* const kept = kKept + kLanes - rest;
  const auto other = reinterpret_cast<Vector>(Simd<T>::all(x));
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; i += Simd<T>::kLanes) {
    const auto mask = *reinterpret_cast<const Vector*>(kept + i);
    auto* const at = reinterpret_cast<Vector*>(last + i);
    *at = (*at & mask) | (other & ~mask);
  }
}

// The lanes of the sum of x[i] * y[i], each rounded twice.
template <class T>
LaneVectors<T> lanes_of_products(int64_t n, const T* x, const T* y) {
  auto lanes = LaneVectors<T>::all(T(0));
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    auto product = LaneVectors<T>::load(x + i);
    product.join([](auto a, auto b) { return a * b; }, LaneVectors<T>::load(y + i));
    lanes.join(kAdd, product);
  }
  if (i < n) {
    T of[kLanes];
    lanes.store(of);
    for (int l = 0; i + l < n; ++l) of[l] = of[l] + x[i + l] * y[i + l];
    lanes = LaneVectors<T>::load(of);
  }
  return lanes;
}

}  // namespace
}  // namespace lockstep::inline LOCKSTEP_ISA
