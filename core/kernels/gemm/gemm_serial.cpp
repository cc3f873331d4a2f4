// B is cut into blocks of about kWide columns and up to kDepth rows, packed as panels of one register tile's width, or
// read in place where it lies as one such panel does or was packed before. Tiles of A's rows go outside, panels inside:
// the packed block streams from the second-level cache while a tile of A stays in the first. A is read in place where
// it is of type T with contiguous rows, or columns that few panels read, and otherwise packed a strip of tiles at a
// time (gemm_pack.h; the tiles are in gemm_tile.h). Blocking after Goto and van de Geijn, "Anatomy of High-Performance
// Matrix Multiplication" (ACM TOMS 2008).
#include "core/kernels/gemm/gemm_serial.h"

#include "core/kernels/gemm/gemm_few_rows.h"
#include "core/kernels/gemm/gemm_pack.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int64_t kDepth = 384, kWide = 528;

// How operands are given other than as matrices in memory: one of A and B gathered; else rows that need a part alone,
// and B packed before.
template <class T>
struct GivenOperands {
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
      // Tiles of pairs take whole panels.
      const int vectors = static_cast<int>(left < of_panel && !Tile::kPairs ? left : of_panel);
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
  BlockExtents(const GemmArgs& g, int64_t cols, int64_t widest) {
    const int64_t blocks_k = (g.k + kDepth - 1) / kDepth, blocks_n = (g.n + widest - 1) / widest;
    depth = blocks_k > 1 ? ((g.k + blocks_k - 1) / blocks_k + 31) / 32 * 32 : g.k;
    wide = blocks_n > 1 ? ((g.n + blocks_n - 1) / blocks_n + cols - 1) / cols * cols : g.n;
  }
  int64_t depth, wide;
};

template <class T, class Tile>
void multiply(Parallel& parallel, const GemmArgs& g, const GivenOperands<T>& given = {}) {
  const PackedMatrix<T>& packed = given.packed;
  const int64_t packed_k = packed_depth<Tile>(packed.k);
  const bool direct_c = g.c.dtype == kTypeOf<T>;
  // Few rows that are read in place take packed B a panel at a time, so that it comes from the second-level cache once.
  const bool by_panels = packed.data && g.m <= 2 * Tile::kRows && g.a.dtype == kTypeOf<T> && g.a.col_stride == 1;
  const BlockExtents block(g, Tile::kCols, by_panels ? Tile::kCols : kWide);
  const auto panels_of = [&](int64_t cols) { return packed.data ? Panels<Tile>::whole(cols) : Panels<Tile>(cols); };
  const Panels<Tile> widest = panels_of(block.wide);
  // Where C is stored in another type, its sums live in scratch: of one strip of rows, or with several blocks of k of
  // all until the last one.
  const bool one_strip = !direct_c && g.k <= block.depth;
  const int64_t sums = direct_c ? 0 : (one_strip ? kStripRows<Tile> : g.m) * widest.cols,
                of_strip =
                    kStripRows<Tile> / Tile::kRows * packed_rows<T>(Tile::kRows) * packed_depth<Tile>(block.depth),
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
    const Panels<Tile> panels = panels_of(cols);
    T* c_base = direct_c ? static_cast<T*>(g.c.data) + n0 : wide_c;
    const int64_t ldc = direct_c ? g.c.row_stride : panels.cols;
    if (g.bias) {
      load_run<T>(g.bias, g.bias_dtype, n0, 1, cols, bias);
      for (int64_t j = cols; j < panels.cols; ++j) bias[j] = T(0);
    }
    for (int64_t k0 = 0; k0 == 0 || k0 < g.k; k0 += block.depth) {
      const int64_t depth = g.k - k0 < block.depth ? g.k - k0 : block.depth;
      const T* of_b = packed_b;
      if (packed.data) of_b = packed.data + panels.packed_at(n0 / Tile::kCols, packed_k) + k0 * Tile::kCols;
      else if (given.b) pack_gathered<T>(*given.b, k0, depth, n0, cols, panels, packed_b);
      else if (lies_packed<T, Tile>(g.b, cols, panels)) of_b = static_cast<const T*>(g.b.data) + k0 * cols + n0;
      else pack_b<T>(g.b, k0, depth, n0, cols, panels, packed_b);
      const Start start = k0 > 0 || g.accumulate ? Start::kAccumulate : g.bias ? Start::kBias : Start::kZero;
      const int64_t block_depth = packed_depth<Tile>(depth);
      const int64_t panel_depth = packed.data ? packed_k : block_depth;
      const ColumnsOfC<T, Tile> columns{panels, cols, c_base, 0,           ldc,         direct_c,
                                        edge,   bias, of_b,   block_depth, panel_depth, start};
      const StoredC<T> stored{g.c,      n0, cols, !direct_c && k0 == 0 && g.accumulate, !direct_c && k0 + depth >= g.k,
                              one_strip};
      if (given.a) multiply_gathered(*given.a, g.m, k0, depth, columns, stored, strip_a);
      else multiply_matrix(g.a, g.m, k0, depth, columns, stored, given.stairs, strip_a);
      if (g.k == 0) break;
    }
  }
}

// Calls use(a tile) with the tile for products by chains into n columns. Where A is read in place, by rows, that has
// fewer rows and, if there are columns for them, more vectors.
template <class T, class Use>
auto with_tile(bool rows_in_place, int64_t n, const Use& use) {
  using S = Simd<T>;
  if constexpr (S::kInPlaceRows != S::kRows)
    if (rows_in_place && n > 4 * S::kLanes) return use(Tile<T, S::kInPlaceRows, S::kInPlaceVectors, Sums::kChain>());
  return use(Tile<T, S::kRows, S::kVectors, Sums::kChain>());
}

template <class T>
void multiply_by_chains(Parallel& parallel, const GemmArgs& g, const GivenOperands<T>& given = {}) {
  // pack_matrix() packs for rows in place.
  const bool rows_in_place = given.a || given.packed.data || g.a.col_stride == 1;
  with_tile<T>(rows_in_place, given.packed.data ? given.packed.n : g.n,
               [&](auto tile) { multiply<T, decltype(tile)>(parallel, g, given); });
}

using TileOfPairs = Tile<float, Simd<float>::kPairRows, Simd<float>::kPairVectors, Sums::kPairs>;

// Calls use(a tile) with the tile for whose products a matrix of elements `dtype` is packed.
template <class T, class Use>
auto with_tile_of_packed(DType dtype, int64_t n, const Use& use) {
  if constexpr (std::is_same_v<T, float>)
    if (dtype == DType::kBFloat16) return use(TileOfPairs());
  return with_tile<T>(true, n, use);
}

}  // namespace

template <>
void gemm_serial<float>(Parallel& parallel, const GemmArgs& g, const Stairs& stairs,
                        const PackedMatrix<float>& packed) {
  const bool pairs = g.a.dtype == DType::kBFloat16 && g.b.dtype == DType::kBFloat16;
  if (!packed.data) {
    if (pairs && has_few_rows<float, true>(g)) return multiply_few_rows<float, true>(parallel, g);
    if (!pairs && has_few_rows<float, false>(g)) return multiply_few_rows<float, false>(parallel, g);
  }
#if defined(LOCKSTEP_TILES)
  if (pairs) return multiply_by_tiles(parallel, g, packed);
#endif
  // Without stairs: tiles of pairs take whole panels and whole blocks of k.
  if (pairs) return multiply<float, TileOfPairs>(parallel, g, {.packed = packed});
  multiply_by_chains<float>(parallel, g, {.stairs = stairs, .packed = packed});
}

template <>
void gemm_serial<double>(Parallel& parallel, const GemmArgs& g, const Stairs& stairs,
                         const PackedMatrix<double>& packed) {
  multiply_by_chains<double>(parallel, g, {.stairs = stairs, .packed = packed});
}

template <class T>
int64_t packed_size(DType dtype, int64_t k, int64_t n) {
#if defined(LOCKSTEP_TILES)
  if constexpr (std::is_same_v<T, float>)
    if (dtype == DType::kBFloat16) return size_packed_for_tiles(k, n);
#endif
  return with_tile_of_packed<T>(dtype, n, [&](auto tile) {
    return Panels<decltype(tile)>::whole(n).packed_size(packed_depth<decltype(tile)>(k));
  });
}
template <class T>
PackedMatrix<T> pack_matrix(const Matrix& b, int64_t k, int64_t n, T* out) {
#if defined(LOCKSTEP_TILES)
  if constexpr (std::is_same_v<T, float>)
    if (b.dtype == DType::kBFloat16) return pack_for_tiles(b, k, n, out), PackedMatrix<T>{out, k, n};
#endif
  with_tile_of_packed<T>(b.dtype, n, [&](auto tile) {
    using Of = decltype(tile);
    pack_b<T, Of>(b, 0, k, 0, n, Panels<Of>::whole(n), out);
  });
  return {out, k, n};
}
template int64_t packed_size<float>(DType, int64_t, int64_t);
template int64_t packed_size<double>(DType, int64_t, int64_t);
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
