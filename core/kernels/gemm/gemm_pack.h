// Operands of the matrix product as its register tiles read them: B in panels, A in strips of tiles. Plain functions,
// compiled once per instruction-set level; gemm_serial.cpp alone includes this.
#pragma once

#include "core/kernels/gemm/gemm_tile.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {  // one file includes this: what is called once is compiled into its caller

// Columns [0, n) as panels of at most kVectors vectors, as even as they can be: the first `wider` have one vector more.
template <class Tile>
struct Panels {
  explicit Panels(int64_t n) {
    const int64_t vectors = (n + Tile::kLanes - 1) / Tile::kLanes;
    count = (vectors + Tile::kVectors - 1) / Tile::kVectors;
    narrow = count ? vectors / count : 0;
    wider = count ? vectors % count : 0;
    cols = vectors * Tile::kLanes;
  }
  // Panels of all of kVectors vectors, so that they begin at the same columns however many columns there are.
  static Panels whole(int64_t n) {
    Panels out(n);
    out.narrow = Tile::kVectors, out.wider = 0;
    out.cols = out.count * Tile::kCols;
    return out;
  }
  int64_t begin(int64_t i) const { return (i * narrow + (i < wider ? i : wider)) * Tile::kLanes; }
  int vectors(int64_t i) const { return static_cast<int>(narrow + (i < wider ? 1 : 0)); }
  // Where panel i is packed: after each panel a gap of a tile's width, so that panels do not share the sets of a cache.
  int64_t packed_at(int64_t i, int64_t depth) const { return begin(i) * depth + i * Tile::kCols; }
  int64_t packed_size(int64_t depth) const { return packed_at(count, depth); }
  int64_t count, narrow, wider, cols;  // cols: of all panels
};

// How the elements that Tile multiplies are stored where they need no other conversion than Simd<T>::load.
template <class T, class Tile>
using Stored = std::conditional_t<Tile::kPairs, uint16_t, T>;
template <class T, class Tile>
constexpr DType kStored = Tile::kPairs ? DType::kBFloat16 : kTypeOf<T>;

// Rows of A in type T, as many as are converted or packed at once: in tiles of H rows, `tile_step` apart.
template <class T>
struct Strip {
  RowsOfA<T> first;
  int64_t tile_step;
  RowsOfA<T> at(int64_t row, int64_t H) const {
    const int64_t in_tile = row % H;
    return {first.data + row / H * tile_step + (first.packed ? in_tile : in_tile * first.stride), first.stride,
            first.packed};
  }
};

template <class T, class Tile>
void pack_gathered(const GatheredMatrix<T>& b, int64_t k0, int64_t depth, int64_t n0, int64_t n,
                   const Panels<Tile>& panels, T* out) {
  for (int64_t i = 0; i < panels.count; ++i) {
    const int64_t j0 = panels.begin(i), width = panels.vectors(i) * Tile::kLanes,
                  cols = n - j0 < width ? n - j0 : width;
    T* o = out + panels.packed_at(i, depth);
    b.gather(k0, depth, n0 + j0, cols, o, width);
    for (int64_t k = 0; cols < width && k < depth; ++k)
      for (int64_t j = cols; j < width; ++j) o[k * width + j] = T(0);
  }
}

// Where B(k, n) lies, of an element (k, n) counted from a block's first.
struct BlockOfB {
  const Matrix& b;
  int64_t first;  // element
  int64_t at(int64_t k, int64_t n) const { return first + k * b.row_stride + n * b.col_stride; }
};

// Packs `depth` rows of B, whose elements lie side by side.
template <class T, class Tile>
void pack_rows(const BlockOfB& from, int64_t depth, int64_t packed, int64_t n, const Panels<Tile>& panels, T* out) {
  using S = Simd<T>;
  constexpr int64_t L = S::kLanes, kRowsAtOnce = 32;  // rows may lie in a page each
  const Matrix& b = from.b;
  for (int64_t k1 = 0; k1 < depth; k1 += kRowsAtOnce) {
    const int64_t k2 = depth - k1 < kRowsAtOnce ? depth : k1 + kRowsAtOnce;
    for (int64_t i = 0; i < panels.count; ++i) {
      const int64_t j0 = panels.begin(i), width = panels.vectors(i) * L, cols = n - j0 < width ? n - j0 : width;
      T* o = out + panels.packed_at(i, packed);
      if (b.dtype == kStored<T, Tile> && cols == width) {
        const auto* p = static_cast<const Stored<T, Tile>*>(b.data) + from.at(0, j0);
        const auto copy = [&](auto vectors) {
          for (int64_t k = k1; k < k2; ++k)
            for (int64_t j = 0; j < vectors; ++j)
              S::store(o + (k * vectors + j) * L, S::load(p + k * b.row_stride + j * L));
        };
        if (width == 3 * L) copy(std::integral_constant<int64_t, 3>());
        else if (width == 2 * L) copy(std::integral_constant<int64_t, 2>());
        else copy(std::integral_constant<int64_t, 1>());
        continue;
      }
      for (int64_t k = k1; k < k2; ++k) {
        load_run<T>(b.data, b.dtype, from.at(k, j0), 1, cols, o + k * width);
        for (int64_t j = cols; j < width; ++j) o[k * width + j] = T(0);
      }
    }
  }
}

// Packs `cols` of the L columns from j0 on, of which column j is at out[j]; the rest is zero. Where the elements of a
// column lie side by side, squares of L x L are transposed.
template <class T, class Tile>
void pack_columns(const BlockOfB& from, int64_t depth, int64_t j0, int64_t cols, int64_t width, T* out) {
  using S = Simd<T>;
  constexpr int64_t L = S::kLanes;
  const Matrix& b = from.b;
  int64_t k = 0;
  for (; b.row_stride == 1 && k + L <= depth; k += L) {
    typename S::V v[L];
    if (b.dtype == kStored<T, Tile>) {
      const auto* p = static_cast<const Stored<T, Tile>*>(b.data) + from.at(k, j0);
#pragma GCC unroll 16
      for (int64_t j = 0; j < L; ++j) v[j] = j < cols ? S::load(p + j * b.col_stride) : S::all(T(0));
    } else {
      alignas(64) T converted[L * L] = {};
      for (int64_t j = 0; j < cols; ++j) load_run<T>(b.data, b.dtype, from.at(k, j0 + j), 1, L, converted + j * L);
#pragma GCC unroll 16
      for (int64_t j = 0; j < L; ++j) v[j] = S::load(converted + j * L);
    }
    transpose_vectors<T>(v);
#pragma GCC unroll 16
    for (int64_t y = 0; y < L; ++y) S::store(out + (k + y) * width, v[y]);
  }
  for (; k < depth; ++k)
    for (int64_t j = 0; j < L; ++j)
      out[k * width + j] = j < cols ? load_element<T>(b.data, b.dtype, from.at(k, j0 + j)) : T(0);
}

// Panel i at out + packed_at(i, packed): [packed depth, its columns] of B(k0.., n0..); what lies past n or depth is
// zero.
template <class T, class Tile>
void pack_b(const Matrix& b, int64_t k0, int64_t depth, int64_t n0, int64_t n, const Panels<Tile>& panels, T* out) {
  constexpr int64_t L = Tile::kLanes;
  const int64_t packed = packed_depth<Tile>(depth);
  for (int64_t i = 0; packed > depth && i < panels.count; ++i)
    memset(out + panels.packed_at(i, packed) + depth * panels.vectors(i) * L, 0,
           static_cast<size_t>((packed - depth) * panels.vectors(i) * L) * sizeof(T));
  const BlockOfB from{b, k0 * b.row_stride + n0 * b.col_stride};
  if (b.col_stride == 1) return pack_rows<T>(from, depth, packed, n, panels, out);
  for (int64_t i = 0; i < panels.count; ++i) {
    const int64_t width = panels.vectors(i) * L;
    for (int64_t x = 0; x < width; x += L) {
      const int64_t j0 = panels.begin(i) + x, cols = n - j0 < L ? n - j0 : L;
      pack_columns<T, Tile>(from, depth, j0, cols, width, out + panels.packed_at(i, packed) + x);
    }
  }
}

// Whether B lies as one packed panel does.
template <class T, class Tile>
bool lies_packed(const Matrix& b, int64_t cols, const Panels<Tile>& panels) {
  return !Tile::kPairs && b.dtype == kTypeOf<T> && panels.count == 1 && panels.cols == cols && b.col_stride == 1 &&
         b.row_stride == cols;
}

// Rows are converted or packed several tiles at a time, 48 rows or 56: one tile's few would be short runs of memory.
template <class Tile>
constexpr int64_t kStripRows = (Tile::kRows > 8 ? 4 : 8) * Tile::kRows;

// Whether columns of A are read where they lie: by one panel of B once, as packing them would; by a few, if those of a
// tile stay in the first-level cache. For each k these lie in at most two lines; at a distance that is a multiple of
// 256 bytes they would share a quarter of the cache's sets or less.
template <class T, class Tile>
bool reads_columns_in_place(const Matrix& a, int64_t depth, int64_t panels) {
  constexpr int64_t kCache = 16 << 10, kLine = 64, kDeepest = 64;  // bytes; k
  constexpr int64_t kFewVectors = Simd<T>::kReadsFactor ? 9 : 6;
  if (a.dtype != kTypeOf<T> || a.row_stride != 1 || a.col_stride == 1) return false;
  const int64_t apart = a.col_stride * size_of(a.dtype);
  return panels == 1 || (panels * Tile::kVectors <= kFewVectors &&
                         (depth * apart <= kCache || (apart % (4 * kLine) != 0 && depth <= kDeepest)));
}

// `rows` rows of A, at most a strip: in place, or in `out`. `panels`: of B, by which they are multiplied.
template <class T, class Tile>
Strip<T> strip_of_a(const Matrix& a, int64_t k0, int64_t depth, int64_t m0, int64_t rows, int64_t panels, T* out) {
  constexpr int64_t H = Tile::kRows, S = kStripRows<Tile>, P = packed_rows<T>(H);
  const int64_t at = m0 * a.row_stride + k0 * a.col_stride, packed = packed_depth<Tile>(depth);
  if (a.col_stride == 1) {
    if (a.dtype == kTypeOf<T>) return {{static_cast<const T*>(a.data) + at, a.row_stride, false}, H * a.row_stride};
    for (int64_t i = 0; i < rows; ++i) {
      load_run<T>(a.data, a.dtype, at + i * a.row_stride, 1, depth, out + i * packed);
      for (int64_t k = depth; k < packed; ++k) out[i * packed + k] = T(0);
    }
    return {{out, packed, false}, H * packed};
  }
  if (!Tile::kPairs && reads_columns_in_place<T, Tile>(a, depth, panels))
    return {{static_cast<const T*>(a.data) + at, a.col_stride, true}, H};
  const int64_t tile = P * packed;
  if (a.row_stride == 1) {
    constexpr int64_t kAhead = 8;  // each k may lie in a page of its own
    T line[S + P];                 // rows side by side are converted together
    const int64_t of_line = 64 / size_of(a.dtype);
    for (int64_t k = 0; k < depth; ++k) {
      const int64_t from = at + k * a.col_stride;
      T* o = out + k * P;
      for (int64_t i = 0; i < rows; i += of_line)
        __builtin_prefetch(static_cast<const char*>(a.data) + (from + i + kAhead * a.col_stride) * size_of(a.dtype));
      if (a.dtype == kTypeOf<T>) {
        const T* p = static_cast<const T*>(a.data) + from;
        int64_t i = 0;
        for (; i + H <= rows; i += H, o += tile) memcpy(o, p + i, H * sizeof(T));
        for (; i < rows; ++i) *o++ = p[i];
      } else {
        load_run<T>(a.data, a.dtype, from, 1, rows, line);
        for (int64_t i = 0; i < rows; i += H, o += tile) memcpy(o, line + i, P * sizeof(T));
      }
    }
  } else {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = 0; k < depth; ++k)
        out[i / H * tile + k * P + i % H] = load_element<T>(a.data, a.dtype, at + i * a.row_stride + k * a.col_stride);
  }
  for (int64_t t = 0; packed > depth && t * H < rows; ++t)
    memset(out + t * tile + depth * P, 0, static_cast<size_t>((packed - depth) * P) * sizeof(T));
  return {{out, P, true}, tile};
}

}  // namespace
}  // namespace lockstep::inline LOCKSTEP_ISA
