// Register tiles of the matrix product: how an element of C is summed, and the loops over k. Plain functions, compiled
// once per instruction-set level; gemm_serial.cpp alone includes this.
#pragma once

#include "core/kernels/gemm/gemm_serial.h"
#include "core/kernels/simd.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {  // one file includes this: what is called once is compiled into its caller

enum class Start { kZero, kAccumulate, kBias };

// How the products of an element of C are summed.
//   kChain: one chain of multiply-adds over k in order.
//   kPairs: for each block of kPairBlock consecutive k, counted from 0, a chain over its even k and one over its odd k,
//   both begun at 0; their sum is added to the element. This is what a processor's tiles of bf16 compute
//   (gemm_tiles.cpp), with denormals flushed, to the bit. A last block that is not whole counts as filled up with
//   zeros.
enum class Sums { kChain, kPairs };
constexpr int64_t kPairBlock = 32;

// In a packed tile of A each k takes room for so many rows: whole vectors, so that converted ones are copied in whole.
template <class T>
constexpr int64_t packed_rows(int rows) {
  constexpr int64_t kWhole = 32 / sizeof(T);
  return (rows + kWhole - 1) / kWhole * kWhole;
}

// A register tile of C: kRows rows of kVectors vectors.
template <class T, int H, int V, Sums S>
struct Tile {
  static constexpr int kRows = H, kVectors = V, kLanes = Simd<T>::kLanes, kCols = V * kLanes;
  static constexpr bool kPairs = S == Sums::kPairs;
  static_assert(!kPairs || packed_rows<T>(H) == packed_rows<T>(1));  // so that the last rows are packed as a tile is
};

// The depth to which operands are packed: with pairs, a block that is not whole has a zero in both of its chains.
template <class Tile>
int64_t packed_depth(int64_t depth) {
  const int64_t rest = depth % kPairBlock;
  if (!Tile::kPairs || rest == 0) return depth;
  return depth - rest + (rest + 3 < kPairBlock ? (rest + 3) / 2 * 2 : kPairBlock);
}

// Where a multiply-add can read its factor from memory (simd.h), it does so for all rows of a packed tile of A but the
// first few, which are broadcast by an instruction of their own. That saves an instruction a row, which counts where
// two hardware threads share a core and each begins half as many a cycle; for all rows it would take more loads than
// two a cycle. Tiles of pairs also do so for rows in place whose address is in one register.
constexpr int kBroadcastRows = 3;

// C[M, N vectors], one tile. Rows of A come as the pointer and stride of a RowsOfA: as that struct they would be passed
// in memory, and loading it waits for the stores that wrote it. B [depth, N vectors] is of a panel whose rows are `ldb`
// apart.
template <class T, int M, int N, bool kPacked>
void multiply_tile(int64_t depth, const T* a, int64_t stride, const T* b, int64_t ldb, T* c, int64_t ldc, Start start,
                   const T* bias) {
  using S = Simd<T>;
  constexpr int L = S::kLanes;
  constexpr bool kReads = kPacked && S::kReadsFactor;
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
      if constexpr (kReads) {
        if (i >= kBroadcastRows) {
#pragma GCC unroll 4
          for (int j = 0; j < N; ++j) acc[i][j] = S::add_product_of(p0[i], bv[j], acc[i][j]);
          continue;
        }
      }
      const typename S::V av = S::all(kReads ? p0[i] : kPacked ? p0[k * stride + i] : p[i % 3 * stride + k]);
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) acc[i][j] = S::add_product(av, bv[j], acc[i][j]);
    }
    if (kReads) {
      p0 += stride;
      asm("" : "+r"(p0));  // else the compiler keeps a pointer to each row of each k
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
  ldb = N * L;  // always so, as these use whole panels; known here
  if (kPacked) stride = packed_rows<T>(M);
  constexpr int kAtOnce = S::kManyRegisters ? 2 : 1;  // chains
  typename S::V sums[2][M][N];                        // over the even k and over the odd ones
  for (int64_t k0 = 0; k0 == 0 || k0 < depth; k0 += kPairBlock) {
    const int64_t end = depth - k0 < kPairBlock ? depth : k0 + kPairBlock;
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) sums[0][i][j] = sums[1][i][j] = S::all(T(0));
#pragma GCC unroll 2
    for (int first = 0; first < 2; first += kAtOnce) {
      const T *p0 = a + (k0 + first) * (kPacked ? stride : 1), *p1 = p0 + 3 * stride, *p2 = p0 + 6 * stride,
              *q = b + (k0 + first) * ldb;
      for (int64_t k = k0; k < end; k += 2) {
#pragma GCC unroll 2
        for (int x = 0; x < kAtOnce; ++x) {
          typename S::V bv[N];
#pragma GCC unroll 4
          for (int j = 0; j < N; ++j) bv[j] = S::load(q + x * ldb + j * L);
#pragma GCC unroll 16
          for (int i = 0; i < M; ++i) {
            const T* p = kPacked ? p0 + x * stride + i : (i < 3 ? p0 : i < 6 ? p1 : p2) + i % 3 * stride + x;
            if constexpr (S::kReadsFactor) {
              if (kPacked ? i >= kBroadcastRows : i % 3 == 0) {  // addressed by one register
#pragma GCC unroll 4
                for (int j = 0; j < N; ++j) sums[first + x][i][j] = S::add_product_of(*p, bv[j], sums[first + x][i][j]);
                continue;
              }
            }
            const typename S::V av = S::all(*p);
#pragma GCC unroll 4
            for (int j = 0; j < N; ++j) sums[first + x][i][j] = S::mul_add_exact(av, bv[j], sums[first + x][i][j]);
          }
        }
        q += 2 * ldb;
        p0 += kPacked ? 2 * stride : 2, p1 += 2, p2 += 2;
        asm("" : "+r"(q), "+r"(p0));  // else the compiler addresses each by several registers
        if (!kPacked && M > 3) asm("" : "+r"(p1));
        if (!kPacked && M > 6) asm("" : "+r"(p2));
      }
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

}  // namespace
}  // namespace lockstep::inline LOCKSTEP_ISA
