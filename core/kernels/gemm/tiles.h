// The tile registers of AMX for products of bf16 (Intel SDM, volume 2, TDPBF16PS): 8 tiles of 16 rows of 64 bytes.
// LOCKSTEP_EMULATE_TILES: the same on any CPU, for tests. Tile<n> is register n of the calling thread; TilesInUse
// configures them for its lifetime.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {

#if defined(LOCKSTEP_EMULATE_TILES)

inline thread_local unsigned char emulated_tiles[8][16][64];

struct TilesInUse {
  TilesInUse() { std::memset(emulated_tiles, 0xFF, sizeof emulated_tiles); }
};

template <int N>
struct TileRegister {
  static void zero() { std::memset(emulated_tiles[N], 0, 1024); }
  static void load(const void* p, int64_t stride_bytes) {
    for (int r = 0; r < 16; ++r) std::memcpy(emulated_tiles[N][r], static_cast<const char*>(p) + r * stride_bytes, 64);
  }
  static void store(void* p, int64_t stride_bytes) {
    for (int r = 0; r < 16; ++r) std::memcpy(static_cast<char*>(p) + r * stride_bytes, emulated_tiles[N][r], 64);
  }
};

// C += A B, with A [16, 32] and B [16 pairs of k, 16 columns, 2].
template <int C, int A, int B>
void multiply_tiles() {
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n) {
      float sum, of[2] = {0, 0};
      for (int k = 0; k < 32; ++k) {
        uint16_t a, b;
        std::memcpy(&a, emulated_tiles[A][m] + 2 * k, 2);
        std::memcpy(&b, emulated_tiles[B][k / 2] + 4 * n + 2 * (k % 2), 2);
        of[k % 2] = fused(from_bf16(a), from_bf16(b), of[k % 2]);
      }
      std::memcpy(&sum, emulated_tiles[C][m] + 4 * n, 4);
      sum = sum + (of[0] + of[1]);
      std::memcpy(emulated_tiles[C][m] + 4 * n, &sum, 4);
    }
}

#else

struct TilesInUse {
  TilesInUse() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t bytes_of_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } configuration;
    static_assert(sizeof configuration == 64);
    asm volatile("ldtilecfg %0" : : "m"(configuration));
  }
  ~TilesInUse() { asm volatile("tilerelease"); }
  TilesInUse(const TilesInUse&) = delete;
};

// The compiler's own intrinsics do not say that they read and write memory.
template <int N>
struct TileRegister {
  static void zero() { asm volatile("tilezero %%tmm%c0" : : "i"(N)); }
  static void load(const void* p, int64_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride_bytes), "i"(N) : "memory");
  }
  static void store(void* p, int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride_bytes), "i"(N) : "memory");
  }
};

template <int C, int A, int B>
void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}

#endif

}  // namespace lockstep::inline LOCKSTEP_ISA
