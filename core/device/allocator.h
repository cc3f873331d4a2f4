// Caching allocator: blocks cut from large segments, merged when freed, given back only where a GPU has no more, so
// that a training loop's steady state asks the system for nothing and touches no fresh page. Each memory has one: the
// CPU's (huge pages), each GPU's, the pinned memory of each GPU, and each meta device's, which only counts. Any thread
// may call it.
//
// A GPU's blocks belong to the stream that was current when they were taken, and are used again at once in its order;
// what is freed while another stream of that GPU is current, when that one has passed the place. So are pinned blocks,
// which the host writes, wherever they were freed. A thread without a current stream frees what nothing uses any more.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "core/base/error.h"
#include "core/device/device.h"
#include "core/device/memory_use.h"

namespace lockstep {

class DeviceQueue;

using BytesByUse = std::array<int64_t, kMemoryUses>;

struct AllocatorStats {
  int64_t bytes_in_use = 0;
  int64_t peak_bytes = 0;
  int64_t bytes_reserved = 0;      // taken from the system
  int64_t system_allocations = 0;  // how often
  BytesByUse by_use{};             // adds up to bytes_in_use
  BytesByUse peak_by_use{};        // of each use by itself: together they may be more than peak_bytes

  int64_t in_use(MemoryUse use) const { return by_use[static_cast<size_t>(use)]; }
  int64_t peak_of(MemoryUse use) const { return peak_by_use[static_cast<size_t>(use)]; }
};

// There is no more: says the sizes, what holds them, and for whom it was (context().memory_for).
// ExitCode::kDevice.
class OutOfMemory final : public Error {
 public:
  OutOfMemory(ExitCode code, std::string message, const BytesByUse& held_then)
      : Error(code, std::move(message)), held(held_then) {}
  const BytesByUse held;  // in use then, and what was asked for
};

// 256-byte aligned. Throws OutOfMemory. On a meta device the address is unique and must not be followed.
void* allocate_bytes(int64_t bytes, const Device& device = {}, MemoryUse use = MemoryUse::kActivations);
void free_bytes(void* data, const Device& device = {}) noexcept;
// For kernels of `queue`, to keep. Throws ExitCode::kInternal where another queue's stream is current: blocks that it
// freed may be in use by its work yet.
void* allocate_scratch(int64_t bytes, const DeviceQueue& queue, const Device& device);
// Memory that a library wants to give itself, counted like the rest: `library` returns it, or null where there is no
// more. Then what nobody uses goes back to the system, and it is asked once more. Null where it still has none, and on
// a meta device. Whoever gives it back to the library calls forget_bytes before.
void* take_from_library(const std::function<void*()>& library, int64_t bytes, const Device& device, MemoryUse use);
void forget_bytes(void* data, const Device& device) noexcept;
AllocatorStats allocator_stats(const Device& device = {});
void reset_peak_bytes(const Device& device = {});
// What was taken of a GPU while `graph` was recorded (context().recording) was its own; from now on others may have it.
void free_graph_memory(const void* graph, const Device& device);

// Another device without bytes, whose counters begin at 0. They stay for the life of the process.
Device new_meta_device();

// "parameters 4096, gradients 512": what is not 0, largest first.
std::string census_text(const BytesByUse& bytes);

}  // namespace lockstep
