// Products of bf16 by instructions that multiply several k at once: AMX, or the dot products of AVX-512
// (LOCKSTEP_DOTS). C is computed by blocks of up to kBlockRows x 32 elements, over blocks of k. B is packed as panels
// of 32 columns, in words of two k, [words of k, 32]; for AMX rows of A are read in place where they are contiguous and
// whole. Each 32 of k add the sum of two chains to an element (gemm_tile.h defines it, and computes the same bits
// without these instructions). Compiled for the levels amx and avx512_bf16, and for tests with emulated tiles.
#include "core/kernels/gemm/gemm_serial.h"
#include "core/kernels/simd.h"
#if defined(LOCKSTEP_DOTS)
#include "core/kernels/gemm/dots.h"
#else
#include "core/kernels/gemm/tiles.h"
#endif

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

#if defined(LOCKSTEP_DOTS)
constexpr bool kDots = true;
constexpr int64_t kBlockRows = 48, kMostDepth = 512;  // a panel of B stays in the first-level cache
#else
constexpr bool kDots = false;
constexpr int64_t kBlockRows = 32, kMostDepth = 1024;
#endif
constexpr int64_t kBlock = 32, kMostCols = 512;

int64_t whole_blocks(int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

const uint16_t* elements(const Matrix& m, int64_t row, int64_t col) {
  return static_cast<const uint16_t*>(m.data) + row * m.row_stride + col * m.col_stride;
}

// The two k of 32 that word p holds, the low half's first.
constexpr int64_t low_of(int64_t p) { return kDots ? p / 2 * 4 + p % 2 + 2 : 2 * p; }
constexpr int64_t high_of(int64_t p) { return kDots ? p / 2 * 4 + p % 2 : 2 * p + 1; }

// 32 elements in the order of the words.
inline __m512i in_words(__m512i line) {
  if constexpr (!kDots) return line;
  return _mm512_shuffle_epi8(
      line, _mm512_maskz_broadcast_i32x4(0xFFFF, _mm_setr_epi8(4, 5, 0, 1, 6, 7, 2, 3, 12, 13, 8, 9, 14, 15, 10, 11)));
}

// out[x * step + p] = {M(low_of(p), x), M(high_of(p), x)} for words p < 16 of the rows and columns x < 16, of `rows`
// rows and `cols` columns that there are; the rest is zero. With kAcross, out[p * step + x].
template <bool kAcross>
void pack_words(const Matrix& m, int64_t row, int64_t col, int64_t rows, int64_t cols, uint32_t* out, int64_t step) {
  using S = Simd<float>;
  static_assert(S::kLanes == 16);
  rows = rows < kBlock ? rows : kBlock, cols = cols < 0 ? 0 : cols < 16 ? cols : 16;
  const bool down = m.row_stride == 1;  // a column's elements lie side by side
  __m512i v[16];
  if (down) {
    const uint16_t* first = elements(m, row, col);
    const __mmask32 there = static_cast<__mmask32>((uint64_t{1} << rows) - 1);
#pragma GCC unroll 16
    for (int64_t x = 0; x < 16; ++x)
      v[x] = x < cols ? in_words(_mm512_maskz_loadu_epi16(there, first + x * m.col_stride)) : _mm512_setzero_si512();
  } else {
    const __mmask16 there = static_cast<__mmask16>((1u << cols) - 1);
    const auto line = [&](int64_t k) {
      if (k >= rows) return _mm512_setzero_si512();
      const uint16_t* from = elements(m, row + k, col);
      if (m.col_stride == 1) return _mm512_maskz_cvtepu16_epi32(0xFFFF, _mm256_maskz_loadu_epi16(there, from));
      alignas(64) uint32_t gathered[16] = {};
      for (int64_t x = 0; x < cols; ++x) gathered[x] = from[x * m.col_stride];
      return _mm512_load_si512(gathered);
    };
#pragma GCC unroll 16
    for (int64_t p = 0; p < 16; ++p)
      v[p] = _mm512_or_si512(line(low_of(p)), _mm512_maskz_slli_epi32(0xFFFF, line(high_of(p)), 16));
  }
  S::V words[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) words[i] = _mm512_castsi512_ps(v[i]);
  if (down == kAcross) transpose_vectors<float>(words);
#pragma GCC unroll 16
  for (int64_t i = 0; i < 16; ++i) _mm512_storeu_ps(out + i * step, words[i]);
}

#if defined(LOCKSTEP_DOTS)

struct TilesInUse {};

void multiply_block(int64_t depth, int64_t rows, const uint16_t* a, int64_t stride, const uint16_t* b,
                    const float* before, int64_t ldb, float* c, int64_t ldc) {
  multiply_by_dots(depth, rows, a, stride, b, before, ldb, c, ldc);
}

#else

// C(32 x 32) = before + A B over `depth` of k, a multiple of 32. A: rows at `stride` elements; B: a packed panel;
// `before`: rows at `ldb` elements, or null.
void multiply_block(int64_t depth, int64_t, const uint16_t* a, int64_t stride, const uint16_t* b, const float* before,
                    int64_t ldb, float* c, int64_t ldc) {
  if (!before) {
    TileRegister<0>::zero(), TileRegister<1>::zero(), TileRegister<2>::zero(), TileRegister<3>::zero();
  } else {
    const float* below = before + 16 * ldb;
    TileRegister<0>::load(before, 4 * ldb), TileRegister<1>::load(before + 16, 4 * ldb);
    TileRegister<2>::load(below, 4 * ldb), TileRegister<3>::load(below + 16, 4 * ldb);
  }
  const int64_t steps = depth / kBlock, lines = steps ? (kBlock + steps - 1) / steps : 0;
  for (int64_t k = 0; k < steps; ++k) {
    // C's lines are fetched while the products are made.
    for (int64_t r = k * lines; r < (k + 1) * lines && r < kBlock; ++r)
      __builtin_prefetch(c + r * ldc, 1), __builtin_prefetch(c + r * ldc + 16, 1);
    const uint16_t *from_a = a + k * kBlock, *from_b = b + k * kBlock * kBlock;
    TileRegister<6>::load(from_b, 128), TileRegister<4>::load(from_a, 2 * stride);
    multiply_tiles<0, 4, 6>();
    TileRegister<7>::load(from_b + 32, 128);
    multiply_tiles<1, 4, 7>();
    TileRegister<5>::load(from_a + 16 * stride, 2 * stride);
    multiply_tiles<2, 5, 6>();
    multiply_tiles<3, 5, 7>();
  }
  float* below = c + 16 * ldc;
  TileRegister<0>::store(c, 4 * ldc), TileRegister<1>::store(c + 16, 4 * ldc);
  TileRegister<2>::store(below, 4 * ldc), TileRegister<3>::store(below + 16, 4 * ldc);
}

#endif

// Fetches a block of C, in its own type, before it is read or written: of a large C it lies in memory.
void fetch_block(const Matrix& c, int64_t row, int64_t col, int64_t rows, int64_t cols) {
  const int64_t size = size_of(c.dtype);
  for (int64_t r = 0; r < rows; ++r) {
    const char* line = static_cast<const char*>(c.data) + ((row + r) * c.row_stride + col) * size;
    for (int64_t x = 0; x < cols * size; x += 64) __builtin_prefetch(line + x, 1);
  }
}

struct PackedRows {
  const uint16_t* data;
  int64_t stride;
};

// A's rows from m0 on over `depth` of k, as words: where they lie, or in `out`.
PackedRows rows_of_a(const Matrix& a, int64_t m0, int64_t k0, int64_t rows, int64_t depth, uint16_t* out) {
  const int64_t whole = whole_blocks(depth);
  if (!kDots && a.col_stride == 1 && rows == kBlockRows && whole == depth) return {elements(a, m0, k0), a.row_stride};
  const Matrix across{a.data, a.dtype, a.col_stride, a.row_stride, 0};  // its transpose
  for (int64_t half = 0; half < (kDots ? rows : kBlockRows); half += 16)
    for (int64_t k = 0; k < whole; k += kBlock)
      pack_words<false>(across, k0 + k, m0 + half, depth - k, rows - half,
                        reinterpret_cast<uint32_t*>(out + half * whole + k), whole / 2);
  return {out, whole};
}

// B is cut into blocks of kMostCols columns and kMostDepth rows, each packed as panels of kBlock columns.
struct TiledBlock {
  int64_t k0, depth, n0, cols;
  int64_t whole() const { return whole_blocks(depth); }
};

void pack_block(const Matrix& b, const TiledBlock& block, uint16_t* out) {
  const auto [k0, depth, n0, cols] = block;
  const int64_t whole = block.whole();
  for (int64_t j = 0; j < cols; j += kBlock)
    for (int64_t k = 0; k < whole; k += kBlock)
      for (int64_t half = 0; half < kBlock; half += 16)
        pack_words<true>(b, k0 + k, n0 + j + half, depth - k, cols - j - half,
                         reinterpret_cast<uint32_t*>(out + j * whole + k * kBlock) + half, kBlock);
}

// Where a block is in a matrix that was packed before.
int64_t packed_at(const TiledBlock& block, int64_t k) {
  return block.n0 * whole_blocks(k) + block.k0 * whole_blocks(block.cols);
}

// Calls visit(block) for the blocks of B[k, n], at least one of each range of columns.
template <class Visit>
void each_block(int64_t k, int64_t n, const Visit& visit) {
  for (int64_t n0 = 0; n0 < n; n0 += kMostCols)
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += kMostDepth)
      visit(TiledBlock{k0, k - k0 < kMostDepth ? k - k0 : kMostDepth, n0, n - n0 < kMostCols ? n - n0 : kMostCols});
}

}  // namespace

int64_t size_packed_for_tiles(int64_t k, int64_t n) { return whole_blocks(k) * whole_blocks(n) / 2; }
void pack_for_tiles(const Matrix& b, int64_t k, int64_t n, float* out) {
  each_block(k, n, [&](const TiledBlock& block) {
    pack_block(b, block, reinterpret_cast<uint16_t*>(out) + packed_at(block, k));
  });
}

void multiply_by_tiles(Parallel& parallel, const GemmArgs& g, const PackedMatrix<float>& packed) {
  [[maybe_unused]] const TilesInUse tiles{};
  const bool direct_c = g.c.dtype == DType::kFloat32, several = g.k > kMostDepth;
  const int64_t deepest = whole_blocks(g.k < kMostDepth ? g.k : kMostDepth),
                widest = whole_blocks(g.n < kMostCols ? g.n : kMostCols);
  // Sums of C in another type stay in scratch while more blocks of k follow.
  const int64_t kept = !direct_c && several ? (g.m + kBlockRows) * widest : 0;
  float* edge = static_cast<float*>(parallel.scratch(0, (kBlockRows * kBlock + kept) * 4 + kBlockRows * deepest * 2));
  float* sums = edge + kBlockRows * kBlock;
  auto* tile_a = reinterpret_cast<uint16_t*>(sums + kept);
  auto* room = packed.data ? nullptr : static_cast<uint16_t*>(parallel.scratch(1, widest * deepest * 2 + 64));
  each_block(g.k, g.n, [&](const TiledBlock& block) {
    const auto [k0, depth, n0, cols] = block;
    const int64_t whole = block.whole();
    const bool first = k0 == 0, last = k0 + depth >= g.k;
    if (!packed.data) pack_block(g.b, block, room);
    const uint16_t* packed_b =
        packed.data ? reinterpret_cast<const uint16_t*>(packed.data) + packed_at(block, packed.k) : room;
    for (int64_t m0 = 0; m0 < g.m; m0 += kBlockRows) {
      const int64_t rows = g.m - m0 < kBlockRows ? g.m - m0 : kBlockRows;
      const auto [a, stride] = rows_of_a(g.a, m0, k0, rows, depth, tile_a);
      for (int64_t j = 0; j < cols; j += kBlock) {
        const int64_t width = cols - j < kBlock ? cols - j : kBlock;
        if (const int64_t rest = cols - j - kBlock; rest > 0 && (direct_c || last))
          fetch_block(g.c, m0, n0 + j + kBlock, rows, rest < kBlock ? rest : kBlock);
        const bool in_place = direct_c ? (kDots || rows == kBlockRows) && width == kBlock : several;
        const int64_t ldc = !in_place ? kBlock : direct_c ? g.c.row_stride : widest;
        float* c = !in_place  ? edge
                   : direct_c ? static_cast<float*>(g.c.data) + m0 * g.c.row_stride + n0 + j
                              : sums + m0 * widest + j;
        // What the products are added to; null: nothing.
        const float* before = nullptr;
        if (in_place && (!first || (g.accumulate && direct_c))) {
          before = c;
        } else if (!first || g.accumulate) {
          for (int64_t r = 0; r < rows; ++r)
            load_run<float>(g.c.data, g.c.dtype, (m0 + r) * g.c.row_stride + n0 + j, 1, width, edge + r * kBlock);
          before = edge;
        } else if (g.bias) {
          load_run<float>(g.bias, g.bias_dtype, n0 + j, 1, width, edge);
          for (int64_t r = 1; r < kBlockRows; ++r) std::memcpy(edge + r * kBlock, edge, kBlock * sizeof(float));
          before = edge;
        }
        multiply_block(whole, rows, a, stride, packed_b + j * whole, before, before == edge ? kBlock : ldc, c, ldc);
        if (c == edge || (!direct_c && last))
          for (int64_t r = 0; r < rows; ++r)
            store_run<float>(g.c.data, g.c.dtype, (m0 + r) * g.c.row_stride + n0 + j, 1, width, c + r * ldc);
      }
    }
  });
}

}  // namespace lockstep::inline LOCKSTEP_ISA
