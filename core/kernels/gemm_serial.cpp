// B is cut into blocks of up to kWide columns and kDepth rows, packed as panels of one register tile's width, or read
// in place where it lies as one such panel does or was packed before. Tiles of A's rows go outside, panels inside: the
// packed block streams from the second-level cache while a tile of A stays in the first. A is read in place where it is
// of type T with contiguous rows, or columns that few panels read, and otherwise packed a strip of tiles at a time.
// Blocking after Goto and van de Geijn, "Anatomy of
// High-Performance Matrix Multiplication" (ACM TOMS 2008).
#include "core/kernels/gemm_serial.h"

#include "core/kernels/gemm_few_rows.h"
#include "core/kernels/simd.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int64_t kDepth = 384, kWide = 528;  // 528 columns are whole tiles at every level

enum class Start { kZero, kAccumulate, kBias };

// How the products of an element of C are summed.
//   kChain: one chain of multiply-adds over k in order.
//   kPairs: for each block of kPairBlock consecutive k, counted from 0, a chain over its even k and one over its odd k,
//   both begun at 0; their sum is added to the element. This is what a processor's tiles of bf16 compute
//   (gemm_tiles.cpp), with denormals flushed, to the bit. A last block that is not whole counts as filled up with
//   zeros.
enum class Sums { kChain, kPairs };
constexpr int64_t kPairBlock = 32;

// A register tile of C: kRows rows of kVectors vectors.
template <class T, int H, int V, Sums S>
struct Tile {
  static constexpr int kRows = H, kVectors = V, kLanes = Simd<T>::kLanes, kCols = V * kLanes;
  static constexpr bool kPairs = S == Sums::kPairs;
};

// The depth to which operands are packed: with pairs, a block that is not whole has a zero in both of its chains.
template <class Tile>
int64_t packed_depth(int64_t depth) {
  const int64_t rest = depth % kPairBlock;
  if (!Tile::kPairs || rest == 0) return depth;
  return depth - rest + (rest + 3 < kPairBlock ? (rest + 3) / 2 * 2 : kPairBlock);
}

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
    return out;
  }
  int64_t begin(int64_t i) const { return (i * narrow + (i < wider ? i : wider)) * Tile::kLanes; }
  int vectors(int64_t i) const { return static_cast<int>(narrow + (i < wider ? 1 : 0)); }
  // Where panel i is packed: after each panel a gap of a tile's width, so that panels do not share the sets of a cache.
  int64_t packed_at(int64_t i, int64_t depth) const { return begin(i) * depth + i * Tile::kCols; }
  int64_t packed_size(int64_t depth) const { return packed_at(count, depth); }
  int64_t count, narrow, wider, cols;  // cols: n rounded up to whole vectors
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

// C[M, N vectors], one tile. Rows of A come as the pointer and stride of a RowsOfA: as that struct they would be passed
// in memory, and loading it waits for the stores that wrote it. B [depth, N vectors] is of a panel whose rows are `ldb`
// apart.
template <class T, int M, int N, bool kPacked>
void multiply_tile(int64_t depth, const T* a, int64_t stride, const T* b, int64_t ldb, T* c, int64_t ldc, Start start,
                   const T* bias) {
  using S = Simd<T>;
  constexpr int L = S::kLanes;
  // Three rows are reached from one pointer, as the addressing of x86 allows.
  T *c0 = c, *c1 = c + 3 * ldc, *c2 = c + 6 * ldc, *c3 = c + 9 * ldc, *c4 = c + 12 * ldc;
  const auto row = [&](int i) { return (i < 3 ? c0 : i < 6 ? c1 : i < 9 ? c2 : i < 12 ? c3 : c4) + i % 3 * ldc; };
  typename S::V acc[M][N];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j)
      acc[i][j] = start == Start::kZero   ? S::all(T(0))
                  : start == Start::kBias ? S::load(bias + j * L)
                                          : S::load(row(i) + j * L);
  if (start != Start::kAccumulate && depth >= 64)  // C is written at the end
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) __builtin_prefetch(row(i) + j * L, 1);
  const T *p0 = a, *p1 = p0 + 3 * stride, *p2 = p0 + 6 * stride, *p3 = p0 + 9 * stride, *p4 = p0 + 12 * stride;
  const auto step = [&](int64_t k) {
    typename S::V bv[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) bv[j] = S::load(b + k * ldb + j * L);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const T* p = i < 3 ? p0 : i < 6 ? p1 : i < 9 ? p2 : i < 12 ? p3 : p4;
      const typename S::V av = S::all(kPacked ? p0[k * stride + i] : p[i % 3 * stride + k]);
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) acc[i][j] = S::add_product(av, bv[j], acc[i][j]);
    }
  };
  int64_t k = 0;
  if constexpr (S::kManyRegisters)
    for (; k + 4 <= depth; k += 4)
#pragma GCC unroll 4
      for (int64_t x = 0; x < 4; ++x) step(k + x);
  for (; k < depth; ++k) step(k);
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) S::store(row(i) + j * L, acc[i][j]);
}

// The same by pairs; `depth` is a packed depth. With few registers the even chains of a block wait in memory for the
// odd ones, so that either has all of them.
template <class T, int M, int N, bool kPacked>
void multiply_tile_by_pairs(int64_t depth, const T* a, int64_t stride, const T* b, int64_t ldb, T* c, int64_t ldc,
                            Start start, const T* bias) {
  using S = Simd<T>;
  constexpr int L = S::kLanes;
  const T *p0 = a, *p1 = p0 + 3 * stride, *p2 = p0 + 6 * stride;
  typename S::V sums[2][M][N];  // over the even k and over the odd ones
  const auto step = [&](int64_t k, int half) {
    typename S::V bv[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) bv[j] = S::load(b + k * ldb + j * L);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const T* p = i < 3 ? p0 : i < 6 ? p1 : p2;
      const typename S::V av = S::all(kPacked ? p0[k * stride + i] : p[i % 3 * stride + k]);
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) sums[half][i][j] = S::mul_add_exact(av, bv[j], sums[half][i][j]);
    }
  };
  for (int64_t k0 = 0; k0 == 0 || k0 < depth; k0 += kPairBlock) {
    const int64_t end = depth - k0 < kPairBlock ? depth : k0 + kPairBlock;
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) sums[0][i][j] = sums[1][i][j] = S::all(T(0));
    if constexpr (S::kManyRegisters) {
      for (int64_t k = k0; k < end; k += 2) step(k, 0), step(k + 1, 1);
    } else {
      for (int64_t k = k0; k < end; k += 2) step(k, 0);
      for (int64_t k = k0 + 1; k < end; k += 2) step(k, 1);
    }
    const Start from = k0 > 0 ? Start::kAccumulate : start;
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) {
        T* to = c + i * ldc + j * L;
        const typename S::V before = from == Start::kZero   ? S::all(T(0))
                                     : from == Start::kBias ? S::load(bias + j * L)
                                                            : S::load(to);
        S::store(to, S::add(before, S::add(sums[0][i][j], sums[1][i][j])));
      }
  }
}

template <class T>
using TileFunction = void (*)(int64_t depth, const T* a, int64_t stride, const T* b, int64_t ldb, T* c, int64_t ldc,
                              Start, const T* bias);

// A tile is cut into these numbers of rows where fewer than its own are left.
template <class Tile>
constexpr int rows_at_once(int64_t left) {
  return left >= Tile::kRows ? Tile::kRows : left >= 8 && Tile::kRows > 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

template <class T, class Tile, int M, int N, bool kPacked>
TileFunction<T> tile_function() {
  if constexpr (Tile::kPairs) return multiply_tile_by_pairs<T, M, N, kPacked>;
  else return multiply_tile<T, M, N, kPacked>;
}

template <class T, class Tile, int M, bool kPacked>
TileFunction<T> tile_of_rows(int vectors) {
  if constexpr (Tile::kVectors >= 3)
    if (vectors == 3) return tile_function<T, Tile, M, 3, kPacked>();
  return vectors == 2 ? tile_function<T, Tile, M, 2, kPacked>() : tile_function<T, Tile, M, 1, kPacked>();
}

template <class T, class Tile, bool kPacked>
TileFunction<T> tile_of(int rows, int vectors) {
  if (rows == Tile::kRows) return tile_of_rows<T, Tile, Tile::kRows, kPacked>(vectors);
  if constexpr (Tile::kRows > 8)
    if (rows == 8) return tile_of_rows<T, Tile, 8, kPacked>(vectors);
  if constexpr (Tile::kRows > 4)
    if (rows == 4) return tile_of_rows<T, Tile, 4, kPacked>(vectors);
  if constexpr (Tile::kRows > 2)
    if (rows == 2) return tile_of_rows<T, Tile, 2, kPacked>(vectors);
  return tile_of_rows<T, Tile, 1, kPacked>(vectors);
}

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
    if (b.dtype == kStored<T, Tile> && cols == L) {
      const auto* p = static_cast<const Stored<T, Tile>*>(b.data) + from.at(k, j0);
#pragma GCC unroll 16
      for (int64_t j = 0; j < L; ++j) v[j] = S::load(p + j * b.col_stride);
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

// In a packed tile of A each k takes room for so many rows: whole vectors, so that converted ones are copied in whole.
template <class T, class Tile>
constexpr int64_t kPackedRows = (Tile::kRows + 32 / sizeof(T) - 1) / (32 / sizeof(T)) * (32 / sizeof(T));
// Rows are converted or packed several tiles at a time: one tile's few rows would be short runs of memory.
template <class Tile>
constexpr int64_t kStripRows = 8 * Tile::kRows;

// Whether columns of A are read where they lie: by one panel of B once, as packing them would; by a few, if those of a
// tile stay in the first-level cache. For each k these lie in at most two lines; at a distance that is a multiple of
// 256 bytes they would share a quarter of the cache's sets or less.
template <class T>
bool reads_columns_in_place(const Matrix& a, int64_t depth, int64_t panels) {
  constexpr int64_t kCache = 16 << 10, kLine = 64, kDeepest = 64;  // bytes; k
  if (a.dtype != kTypeOf<T> || a.row_stride != 1 || a.col_stride == 1) return false;
  const int64_t apart = a.col_stride * size_of(a.dtype);
  return panels == 1 || (panels <= 3 && (depth * apart <= kCache || (apart % (4 * kLine) != 0 && depth <= kDeepest)));
}

// `rows` rows of A, at most a strip: in place, or in `out`. `panels`: of B, by which they are multiplied.
template <class T, class Tile>
Strip<T> strip_of_a(const Matrix& a, int64_t k0, int64_t depth, int64_t m0, int64_t rows, int64_t panels, T* out) {
  constexpr int64_t H = Tile::kRows, S = kStripRows<Tile>, P = kPackedRows<T, Tile>;
  const int64_t at = m0 * a.row_stride + k0 * a.col_stride, packed = packed_depth<Tile>(depth);
  if (a.col_stride == 1) {
    if (a.dtype == kTypeOf<T>) return {{static_cast<const T*>(a.data) + at, a.row_stride, false}, H * a.row_stride};
    for (int64_t i = 0; i < rows; ++i) {
      load_run<T>(a.data, a.dtype, at + i * a.row_stride, 1, depth, out + i * packed);
      for (int64_t k = depth; k < packed; ++k) out[i * packed + k] = T(0);
    }
    return {{out, packed, false}, H * packed};
  }
  if (!Tile::kPairs && reads_columns_in_place<T>(a, depth, panels))
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

// One of A and B may be gathered; else rows may need a part alone, and B may be packed before.
template <class T>
struct Gathered {
  const GatheredMatrix<T>*a = nullptr, *b = nullptr;
  Stairs stairs = {};
  PackedMatrix<T> packed = {};
};

int64_t within(int64_t x, int64_t most) { return x < 0 ? 0 : x < most ? x : most; }
// How many of the columns [n0, n0 + cols) rows [m, m + rows) need.
int64_t columns_of(const Stairs& s, int64_t m, int64_t rows, int64_t n0, int64_t cols) {
  return s.of == Stairs::Of::kColumns ? within(s.first + m + rows - n0, cols) : cols;
}
struct Range {
  int64_t from, end;
};
// What they need of [k0, k0 + depth), counted from k0.
Range depth_of(const Stairs& s, int64_t m, int64_t rows, int64_t k0, int64_t depth) {
  return {s.of == Stairs::Of::kLateDepth ? within(m - s.first - k0, depth) : 0,
          s.of == Stairs::Of::kDepth ? within(s.first + m + rows - k0, depth) : depth};
}

// Columns of C, and the packed block of B whose products are added to them.
template <class T, class Tile>
struct ColumnsOfC {
  Panels<Tile> panels;
  int64_t cols;
  T* c;  // of row `first`
  int64_t first, ldc;
  bool ends;       // with its last column; else C has room up to whole vectors
  T *edge, *bias;  // edge: a tile's room
  const T* packed_b;
  int64_t packed, panel_depth;  // depth of this block of k; that of whole panels, which sets where each begins
  Start start;

  T* row(int64_t m) const { return c + (m - first) * ldc; }

  // Rows [m, m + rows) of C and their columns up to `end`, of which stretches hold A's, one after the other.
  void multiply_rows(int64_t m, int64_t rows, int64_t end, const Stretch<T>* stretches, int count) const {
    constexpr int64_t kLanes = Tile::kLanes;
    T* of_rows = row(m);
    int before = 0;
    TileFunction<T> function = nullptr;
    for (int64_t p = 0; p < panels.count && panels.begin(p) < end; ++p) {
      const int64_t j = panels.begin(p), of_panel = panels.vectors(p), left = (end - j + kLanes - 1) / kLanes;
      const int vectors = static_cast<int>(left < of_panel ? left : of_panel);
      if (vectors != before)
        function = stretches[0].rows.packed ? tile_of<T, Tile, true>(static_cast<int>(rows), vectors)
                                            : tile_of<T, Tile, false>(static_cast<int>(rows), vectors);
      before = vectors;
      const int64_t width = vectors * kLanes, ldb = of_panel * kLanes;
      const T* b = packed_b + panels.packed_at(p, panel_depth);
      const bool whole = !ends || cols - j >= width;
      if (start == Start::kAccumulate && p + 1 < panels.count)  // the next panel's sums are read first
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t x = 0; x < panels.vectors(p + 1) * Tile::kLanes; x += 64 / static_cast<int>(sizeof(T)))
            __builtin_prefetch(of_rows + r * ldc + j + width + x, 1);
      if (!whole && start == Start::kAccumulate)
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t x = 0; x < width; ++x) edge[r * width + x] = x < cols - j ? of_rows[r * ldc + j + x] : T(0);
      for (int s = 0; s < count; ++s)
        function(stretches[s].depth, stretches[s].rows.data, stretches[s].rows.stride, b + stretches[s].from * ldb, ldb,
                 whole ? of_rows + j : edge, whole ? ldc : width, s > 0 ? Start::kAccumulate : start, bias + j);
      for (int64_t r = 0; !whole && r < rows; ++r)
        for (int64_t x = 0; x < cols - j; ++x) of_rows[r * ldc + j + x] = edge[r * width + x];
    }
  }
};

// How columns of C are stored where that is in another type than T: their sums, in scratch, are read before the first
// block of k and written after the last one, a few rows at a time, while these are in a cache.
template <class T>
struct StoredC {
  const Matrix& c;
  int64_t n0, cols;
  bool loads, stores;  // at this block of k
  bool one_strip;      // scratch has room for one strip's sums, not for all

  void load(int64_t m, int64_t rows, T* sums, int64_t ld) const {
    for (int64_t i = 0; loads && i < rows; ++i)
      load_run<T>(c.data, c.dtype, (m + i) * c.row_stride + n0, 1, cols, sums + i * ld);
  }
  void store(int64_t m, int64_t rows, const T* sums, int64_t ld) const {
    for (int64_t i = 0; stores && i < rows; ++i)
      store_run<T>(c.data, c.dtype, (m + i) * c.row_stride + n0, 1, cols, sums + i * ld);
  }
};

// All m rows of A's columns [k0, k0 + depth), which go through `strip`.
template <class T, class Tile>
void multiply_matrix(const Matrix& a, int64_t m, int64_t k0, int64_t depth, ColumnsOfC<T, Tile> columns,
                     const StoredC<T>& stored, const Stairs& stairs, T* strip) {
  constexpr int64_t S = kStripRows<Tile>;
  for (int64_t m0 = 0; m0 < m; m0 += S) {
    const int64_t most = m - m0 < S ? m - m0 : S;
    const Strip<T> of_a = strip_of_a<T, Tile>(a, k0, depth, m0, most, columns.panels.count, strip);
    if (stored.one_strip) columns.first = m0;
    stored.load(m0, most, columns.row(m0), columns.ldc);
    for (int64_t i = 0, rows; i < most; i += rows) {
      rows = rows_at_once<Tile>(most - i);
      Stretch<T> all{of_a.at(i, Tile::kRows), 0, columns.packed};
      if constexpr (!Tile::kPairs) {  // whose depth is whole blocks
        const Range k = depth_of(stairs, m0 + i, rows, k0, depth);
        if (k.from >= k.end && k0 > 0) continue;
        all.rows.data += k.from * (all.rows.packed ? all.rows.stride : 1);
        all.from = k.from, all.depth = k.from < k.end ? k.end - k.from : 0;
      }
      columns.multiply_rows(m0 + i, rows, columns_of(stairs, m0 + i, rows, stored.n0, columns.cols), &all, 1);
    }
    stored.store(m0, most, columns.row(m0), columns.ldc);
  }
}

template <class T, class Tile>
void multiply_gathered(const GatheredMatrix<T>& a, int64_t m, int64_t k0, int64_t depth, ColumnsOfC<T, Tile> columns,
                       const StoredC<T>& stored, T* strip) {
  for (int64_t m0 = 0, found; m0 < m; m0 += found) {
    Stretch<T> stretches[kMostStretches];
    int count = 0;
    found = a.find_rows(m0, rows_at_once<Tile>(m - m0), k0, depth, strip, stretches, count);
    if (stored.one_strip) columns.first = m0;
    stored.load(m0, found, columns.row(m0), columns.ldc);
    for (int64_t i = 0, rows; i < found; i += rows) {
      rows = rows_at_once<Tile>(found - i);
      columns.multiply_rows(m0 + i, rows, columns.cols, stretches, count);
      for (int s = 0; s < count; ++s) stretches[s].rows.data += rows * stretches[s].rows.stride;
    }
    stored.store(m0, found, columns.row(m0), columns.ldc);
  }
}

// The extents of blocks: as even as they can be.
struct BlockExtents {
  explicit BlockExtents(const GemmArgs& g) {
    const int64_t blocks_k = (g.k + kDepth - 1) / kDepth, blocks_n = (g.n + kWide - 1) / kWide;
    depth = blocks_k > 1 ? ((g.k + blocks_k - 1) / blocks_k + 31) / 32 * 32 : g.k;
    wide = blocks_n > 1 ? ((g.n + blocks_n - 1) / blocks_n + 47) / 48 * 48 : g.n;
  }
  int64_t depth, wide;
};

template <class T, class Tile>
void multiply(Parallel& parallel, const GemmArgs& g, const Gathered<T>& gathered = {}) {
  const PackedMatrix<T>& packed = gathered.packed;
  const bool direct_c = g.c.dtype == kTypeOf<T>;
  const BlockExtents block(g);
  const Panels<Tile> widest(block.wide);
  // Where C is stored in another type, its sums live in scratch: of one strip of rows, or with several blocks of k of
  // all until the last one.
  const bool one_strip = !direct_c && g.k <= block.depth;
  const int64_t sums = direct_c ? 0 : (one_strip ? kStripRows<Tile> : g.m) * widest.cols,
                of_strip = kStripRows<Tile> / Tile::kRows * kPackedRows<T, Tile> * packed_depth<Tile>(block.depth),
                of_edge = Tile::kRows * Tile::kCols;
  T* strip_a = static_cast<T*>(
      parallel.scratch(0, (of_strip + of_edge + widest.cols + sums) * static_cast<int64_t>(sizeof(T)) + 64));
  T *edge = strip_a + of_strip, *bias = edge + of_edge, *wide_c = bias + widest.cols;
  T* packed_b = nullptr;
  if (!packed.data)
    packed_b = static_cast<T*>(parallel.scratch(
        1, widest.packed_size(packed_depth<Tile>(block.depth)) * static_cast<int64_t>(sizeof(T)) + 64));
  for (int64_t n0 = 0; n0 < g.n; n0 += block.wide) {
    const int64_t cols = g.n - n0 < block.wide ? g.n - n0 : block.wide;
    const Panels<Tile> panels = packed.data ? Panels<Tile>::whole(cols) : Panels<Tile>(cols);
    T* c_base = direct_c ? static_cast<T*>(g.c.data) + n0 : wide_c;
    const int64_t ldc = direct_c ? g.c.row_stride : panels.cols;
    if (g.bias) {
      load_run<T>(g.bias, g.bias_dtype, n0, 1, cols, bias);
      for (int64_t j = cols; j < panels.cols; ++j) bias[j] = T(0);
    }
    for (int64_t k0 = 0; k0 == 0 || k0 < g.k; k0 += block.depth) {
      const int64_t depth = g.k - k0 < block.depth ? g.k - k0 : block.depth;
      const T* of_b = packed_b;
      if (packed.data) of_b = packed.data + panels.packed_at(n0 / Tile::kCols, packed.k) + k0 * Tile::kCols;
      else if (gathered.b) pack_gathered<T>(*gathered.b, k0, depth, n0, cols, panels, packed_b);
      else if (lies_packed<T, Tile>(g.b, cols, panels)) of_b = static_cast<const T*>(g.b.data) + k0 * cols + n0;
      else pack_b<T>(g.b, k0, depth, n0, cols, panels, packed_b);
      const Start start = k0 > 0 || g.accumulate ? Start::kAccumulate : g.bias ? Start::kBias : Start::kZero;
      const int64_t block_depth = packed_depth<Tile>(depth);
      const int64_t panel_depth = packed.data ? packed.k : block_depth;
      const ColumnsOfC<T, Tile> columns{panels, cols, c_base, 0,           ldc,         direct_c,
                                        edge,   bias, of_b,   block_depth, panel_depth, start};
      const StoredC<T> stored{g.c,      n0, cols, !direct_c && k0 == 0 && g.accumulate, !direct_c && k0 + depth >= g.k,
                              one_strip};
      if (gathered.a) multiply_gathered(*gathered.a, g.m, k0, depth, columns, stored, strip_a);
      else multiply_matrix(g.a, g.m, k0, depth, columns, stored, gathered.stairs, strip_a);
      if (g.k == 0) break;
    }
  }
}

// Calls use(a tile) with the tile for products by chains into n columns.
template <class T, class Use>
auto with_tile(int64_t n, const Use& use) {
  using S = Simd<T>;
  // Few columns make two-vector panels: then a higher tile keeps as many sums in registers.
  if constexpr (S::kVectors == 3 && std::is_same_v<T, float>)
    if (n <= 4 * S::kLanes) return use(Tile<T, 14, 2, Sums::kChain>());
  return use(Tile<T, S::kRows, S::kVectors, Sums::kChain>());
}

template <class T>
void multiply_by_chains(Parallel& parallel, const GemmArgs& g, const Gathered<T>& gathered = {}) {
  with_tile<T>(gathered.packed.data ? gathered.packed.n : g.n,
               [&](auto tile) { multiply<T, decltype(tile)>(parallel, g, gathered); });
}

}  // namespace

template <>
void gemm_serial<float>(Parallel& parallel, const GemmArgs& g, const Stairs& stairs,
                        const PackedMatrix<float>& packed) {
  using S = Simd<float>;
  const bool pairs = g.a.dtype == DType::kBFloat16 && g.b.dtype == DType::kBFloat16;
  if (pairs && has_few_rows<float, true>(g)) return multiply_few_rows<float, true>(parallel, g);
#if defined(LOCKSTEP_TILES)
  if (pairs) return multiply_by_tiles(parallel, g);
#endif
  if (!pairs && has_few_rows<float, false>(g)) return multiply_few_rows<float, false>(parallel, g);
  if (pairs) return multiply<float, Tile<float, S::kPairRows, S::kPairVectors, Sums::kPairs>>(parallel, g);
  multiply_by_chains<float>(parallel, g, {.stairs = stairs, .packed = packed});
}

template <>
void gemm_serial<double>(Parallel& parallel, const GemmArgs& g, const Stairs& stairs,
                         const PackedMatrix<double>& packed) {
  multiply_by_chains<double>(parallel, g, {.stairs = stairs, .packed = packed});
}

template <class T>
int64_t packed_size(int64_t k, int64_t n) {
  return with_tile<T>(n, [&](auto tile) { return Panels<decltype(tile)>::whole(n).packed_size(k); });
}
template <class T>
PackedMatrix<T> pack_matrix(const Matrix& b, int64_t k, int64_t n, T* out) {
  with_tile<T>(n, [&](auto tile) { pack_b<T>(b, 0, k, 0, n, Panels<decltype(tile)>::whole(n), out); });
  return {out, k, n};
}
template int64_t packed_size<float>(int64_t, int64_t);
template int64_t packed_size<double>(int64_t, int64_t);
template PackedMatrix<float> pack_matrix<float>(const Matrix&, int64_t, int64_t, float*);
template PackedMatrix<double> pack_matrix<double>(const Matrix&, int64_t, int64_t, double*);

template <class T>
void gemm_of_gathered_a(Parallel& parallel, const GemmArgs& g, const GatheredMatrix<T>& a) {
  multiply_by_chains<T>(parallel, g, {.a = &a});
}
template <class T>
void gemm_of_gathered_b(Parallel& parallel, const GemmArgs& g, const GatheredMatrix<T>& b) {
  multiply_by_chains<T>(parallel, g, {.b = &b});
}
template void gemm_of_gathered_a<float>(Parallel&, const GemmArgs&, const GatheredMatrix<float>&);
template void gemm_of_gathered_a<double>(Parallel&, const GemmArgs&, const GatheredMatrix<double>&);
template void gemm_of_gathered_b<float>(Parallel&, const GemmArgs&, const GatheredMatrix<float>&);
template void gemm_of_gathered_b<double>(Parallel&, const GemmArgs&, const GatheredMatrix<double>&);

}  // namespace lockstep::inline LOCKSTEP_ISA
