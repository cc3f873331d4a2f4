// A copy that leaves the caches to what is computed: for what nobody reads soon.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace lockstep {

// After copies without one of their own, by the same thread.
inline void fence_past_caches() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Memory that is written whole need not be read first. The copy is there for other threads and processes once a fence
// and a release store or a lock follow it; it waits for the memory only in the fence.
enum class Fence { kHere, kLater };
inline void copy_past_caches(float* to, const float* from, int64_t n, Fence fence = Fence::kHere) {
#if defined(__SSE2__)
  int64_t i = 0;
  for (; i < n && reinterpret_cast<uintptr_t>(to + i) % 16 != 0; ++i) to[i] = from[i];
  for (; i + 16 <= n; i += 16) {
    const __m128 a = _mm_loadu_ps(from + i), b = _mm_loadu_ps(from + i + 4), c = _mm_loadu_ps(from + i + 8),
                 d = _mm_loadu_ps(from + i + 12);
    _mm_stream_ps(to + i, a);
    _mm_stream_ps(to + i + 4, b);
    _mm_stream_ps(to + i + 8, c);
    _mm_stream_ps(to + i + 12, d);
  }
  for (; i < n; ++i) to[i] = from[i];
  if (fence == Fence::kHere) fence_past_caches();
#else
  std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
#endif
}

}  // namespace lockstep
