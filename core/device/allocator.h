// Caching allocator for CPU memory: blocks cut from large huge-page segments, merged when freed, never given back, so
// that a training loop's steady state asks the system for nothing and touches no fresh page. One per process; any
// thread may call it. Knows nothing of tensors or streams.
#pragma once

#include <cstdint>

namespace lockstep {

struct AllocatorStats {
  int64_t bytes_in_use = 0;
  int64_t peak_bytes = 0;
  int64_t bytes_reserved = 0;      // taken from the system
  int64_t system_allocations = 0;  // how often
};

// 256-byte aligned. Throws ExitCode::kInternal with both sizes when the system has no more.
void* allocate_bytes(int64_t bytes);
void free_bytes(void* data) noexcept;
AllocatorStats allocator_stats();
void reset_peak_bytes();

}  // namespace lockstep
