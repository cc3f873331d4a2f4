// Eight elements of one operand, which a thread loads, converts and stores at once: 16 bytes of bf16 or fp16, 32 of
// fp32. Raw is a chunk as it is stored, so that the loads of several operands are under way before the first is
// converted. Plain values.
#pragma once

#include <cuda_runtime.h>

#include "core/kernels/stage.h"

// CUDA's own word would be taken for one of the host compiler's where that one reads the file.
#if defined(__CUDACC__)
#define LOCKSTEP_NOINLINE __noinline__
#else
#define LOCKSTEP_NOINLINE __attribute__((noinline))
#endif

namespace lockstep::inline LOCKSTEP_ISA {

constexpr int kChunk = 8;

HD constexpr int64_t chunks_of(int64_t n) { return (n + kChunk - 1) / kChunk; }

template <class T>
struct Chunk {
  T v[kChunk];
};

HD inline bool is_half(DType t) { return t == DType::kBFloat16 || t == DType::kFloat16; }
// Types that a chunk of floats is loaded from and stored as whole; others pass element by element.
HD inline bool fits_chunk(DType t) { return t == DType::kFloat32 || is_half(t); }

HD inline bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
HD inline bool is_whole(const void* p, int left) { return left >= kChunk && is_aligned(p); }

struct Raw {
  uint4 a, b;  // b: of four-byte types only
};

__device__ inline uint32_t pair_of(uint32_t low, uint32_t high) { return low | high << 16; }

// The slow ways, for rows that are not aligned, for rests and for other types, are not inlined: rare and long. `left`
// elements are there (more than 0); in the chunk the last of them fills what is beyond.
template <class T>
LOCKSTEP_NOINLINE __device__ Chunk<T> load_each(const void* data, DType dtype, int64_t at, int left) {
  Chunk<T> c;
#pragma unroll
  for (int l = 0; l < kChunk; ++l) c.v[l] = load_element<T>(data, dtype, at + (l < left ? l : left - 1));
  return c;
}
template <class T>
LOCKSTEP_NOINLINE __device__ void store_each(void* data, DType dtype, int64_t at, int left, Chunk<T> c) {
#pragma unroll
  for (int l = 0; l < kChunk; ++l)
    if (l < left) store_element<T>(data, dtype, at + l, c.v[l]);
}
// As it is stored; of types that do not fit, as fp32.
static LOCKSTEP_NOINLINE __device__ Raw load_raw_each(const void* data, DType dtype, int64_t at, int left) {
  uint32_t w[kChunk];
  if (is_half(dtype)) {
    const uint16_t* p = static_cast<const uint16_t*>(data) + at;
#pragma unroll
    for (int l = 0; l < kChunk; ++l) w[l] = p[l < left ? l : left - 1];
    return {make_uint4(pair_of(w[0], w[1]), pair_of(w[2], w[3]), pair_of(w[4], w[5]), pair_of(w[6], w[7])), uint4{}};
  }
#pragma unroll
  for (int l = 0; l < kChunk; ++l) w[l] = bits_of(load_element<float>(data, dtype, at + (l < left ? l : left - 1)));
  return {make_uint4(w[0], w[1], w[2], w[3]), make_uint4(w[4], w[5], w[6], w[7])};
}

// Elements at ... at + 7, of which all are there and aligned to 16 bytes; of a type that fits.
__device__ inline Raw load_whole(const void* data, DType dtype, int64_t at) {
  const uint4* p = reinterpret_cast<const uint4*>(static_cast<const char*>(data) + at * (is_half(dtype) ? 2 : 4));
  return {p[0], is_half(dtype) ? uint4{} : p[1]};
}

// Elements at ... at + 7, of which `left` are there (more than 0).
__device__ inline Raw load_raw(const void* data, DType dtype, int64_t at, int left) {
  const char* p = static_cast<const char*>(data) + at * size_of(dtype);
  return fits_chunk(dtype) && is_whole(p, left) ? load_whole(data, dtype, at) : load_raw_each(data, dtype, at, left);
}

// One element in all places.
__device__ inline Raw load_same(const void* data, DType dtype, int64_t at) {
  uint32_t w;
  if (is_half(dtype)) {
    const uint32_t h = static_cast<const uint16_t*>(data)[at];
    w = pair_of(h, h);
  } else {
    w = static_cast<const uint32_t*>(data)[at];
  }
  return {make_uint4(w, w, w, w), make_uint4(w, w, w, w)};
}

__device__ inline Chunk<float> chunk_of(const Raw& raw, DType dtype) {
  const uint32_t a[4] = {raw.a.x, raw.a.y, raw.a.z, raw.a.w}, b[4] = {raw.b.x, raw.b.y, raw.b.z, raw.b.w};
  Chunk<float> c;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (dtype == DType::kBFloat16) {
      c.v[2 * k] = float_of(a[k] << 16);
      c.v[2 * k + 1] = float_of(a[k] & 0xFFFF0000u);
    } else if (dtype == DType::kFloat16) {
      c.v[2 * k] = from_fp16(static_cast<uint16_t>(a[k]));
      c.v[2 * k + 1] = from_fp16(static_cast<uint16_t>(a[k] >> 16));
    } else {
      c.v[k] = float_of(a[k]);
      c.v[k + 4] = float_of(b[k]);
    }
  }
  return c;
}

__device__ inline uint4 halves_of(const Chunk<float>& c, DType dtype) {
  uint32_t h[kChunk];
#pragma unroll
  for (int l = 0; l < kChunk; ++l) h[l] = dtype == DType::kBFloat16 ? to_bf16(c.v[l]) : to_fp16(c.v[l]);
  return make_uint4(pair_of(h[0], h[1]), pair_of(h[2], h[3]), pair_of(h[4], h[5]), pair_of(h[6], h[7]));
}

// As load_whole.
__device__ inline void store_whole(void* data, DType dtype, int64_t at, const Chunk<float>& c) {
  if (is_half(dtype)) {
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(data) + at) = halves_of(c, dtype);
  } else {
    float4* p = reinterpret_cast<float4*>(static_cast<float*>(data) + at);
    p[0] = make_float4(c.v[0], c.v[1], c.v[2], c.v[3]);
    p[1] = make_float4(c.v[4], c.v[5], c.v[6], c.v[7]);
  }
}

// Writes the first `left` elements.
__device__ inline void store_chunk(void* data, DType dtype, int64_t at, int left, const Chunk<float>& c) {
  const char* p = static_cast<char*>(data) + at * size_of(dtype);
  if (fits_chunk(dtype) && is_whole(p, left)) store_whole(data, dtype, at, c);
  else store_each(data, dtype, at, left, c);
}

// The same in fp64, for tests and whole numbers: an element at a time.
__device__ inline void store_chunk(void* data, DType dtype, int64_t at, int left, const Chunk<double>& c) {
  store_each(data, dtype, at, left, c);
}
template <class T>
struct Loaded {  // what load<T> has under way
  Chunk<T> c;
};
template <>
struct Loaded<float> {
  Raw raw;
};
template <class T>
__device__ inline Loaded<T> load(const void* data, DType dtype, int64_t at, int left) {
  if constexpr (sizeof(T) == 4) return {load_raw(data, dtype, at, left)};
  else return {load_each<T>(data, dtype, at, left)};
}
template <class T>
__device__ inline Chunk<T> value_of(const Loaded<T>& loaded, DType dtype) {
  if constexpr (sizeof(T) == 4) return chunk_of(loaded.raw, dtype);
  else return loaded.c;
}

}  // namespace lockstep::inline LOCKSTEP_ISA
