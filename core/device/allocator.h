// Caching allocator. Blocks are cut from large segments and merged when freed; segments return to the system only when
// a GPU runs out of memory. In its steady state a training loop therefore makes no system allocation. There is one
// allocator for the CPU (huge pages), each GPU, the pinned memory of each GPU, and each meta device, which only counts.
// Thread-safe.
//
// A GPU's block belongs to the stream that was current when it was allocated, and can be reused by that stream as soon
// as it is freed. If it is freed while another stream of that GPU is current, it is reused once that stream has reached
// this point. The same holds for every pinned block, as the host writes them. A thread without a current stream must
// only free blocks that no pending work uses.
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
  int64_t system_allocations = 0;  // number of system calls that took them
  BytesByUse by_use{};             // adds up to bytes_in_use
  BytesByUse peak_by_use{};        // of each use by itself: together they may be more than peak_bytes

  int64_t in_use(MemoryUse use) const { return by_use[static_cast<size_t>(use)]; }
  int64_t peak_of(MemoryUse use) const { return peak_by_use[static_cast<size_t>(use)]; }
};

// Out of memory: the message gives sizes, what holds the memory, and who asked (context().memory_for).
// ExitCode::kDevice.
class OutOfMemory final : public Error {
 public:
  OutOfMemory(ExitCode code, std::string message, const BytesByUse& held_then)
      : Error(code, std::move(message)), held(held_then) {}
  const BytesByUse held;  // in use at that time, including the failed request
};

// 256-byte aligned. Throws OutOfMemory. On a meta device the address is unique and must not be dereferenced.
void* allocate_bytes(int64_t bytes, const Device& device = {}, MemoryUse use = MemoryUse::kActivations);
void free_bytes(void* data, const Device& device = {}) noexcept;
// Scratch memory that kernels of `queue` keep between calls. Throws ExitCode::kInternal if the stream of another queue
// is current: a block that it freed may still be in use.
void* allocate_scratch(int64_t bytes, const DeviceQueue& queue, const Device& device);
// Counts memory that a library allocates itself: library() returns it, or null if memory ran out. In that case unused
// segments are returned to the system and library() is called once more. Returns null if that fails too, and on a meta
// device. Call forget_bytes before the library frees the memory.
void* take_from_library(const std::function<void*()>& library, int64_t bytes, const Device& device, MemoryUse use);
void forget_bytes(void* data, const Device& device) noexcept;
// Returns the GPU's segments that nobody uses to the system, as running out of memory does. While a graph is recorded
// neither happens: memory of work that is recorded must stay where it is.
void trim_memory(const Device& device);
AllocatorStats allocator_stats(const Device& device = {});
void reset_peak_bytes(const Device& device = {});
// Releases the GPU memory that was allocated while `graph` was recorded (context().recording) for use by others.
void free_graph_memory(const void* graph, const Device& device);

// A new meta device whose counters start at 0. It exists until the process ends.
Device new_meta_device();

// "parameters 4096, gradients 512": uses that are not 0, largest first.
std::string census_text(const BytesByUse& bytes);

}  // namespace lockstep
