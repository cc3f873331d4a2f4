// Device: where bytes live. A plain value.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

enum class DeviceType : uint8_t {
  kCpu,       // streams run inline, on the caller's thread and its pool
  kAsyncCpu,  // for tests: CPU memory whose every stream is a thread of its own, so that a missing event is a race
  kCuda,      // a GPU, or in tests the backend that stands in for one: the host must not touch its memory
  kPinned,    // host memory that the GPU `index` reaches too: both sides may use it, in the order of the GPU's streams
  kMeta,      // no bytes: memory is counted and streams run nothing, so that a step can be planned without its machine
};

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  bool has_bytes() const { return type != DeviceType::kMeta; }
  bool in_host_memory() const { return type != DeviceType::kMeta && type != DeviceType::kCuda; }
  friend bool operator==(const Device&, const Device&) = default;
};

// Where the host keeps what belongs to work on `d` but stays off it. What has no bytes has none there either.
inline Device host_memory_of(const Device& d) {
  if (d.type == DeviceType::kCuda) return {DeviceType::kPinned, d.index};
  return d.has_bytes() ? Device{} : d;
}

inline std::string to_text(const Device& d) {
  const char* const kNames[] = {"cpu", "async-cpu", "cuda", "pinned", "meta"};
  return kNames[static_cast<int>(d.type)] +
         (d.index || d.type == DeviceType::kCuda ? ":" + std::to_string(d.index) : "");
}

}  // namespace lockstep
