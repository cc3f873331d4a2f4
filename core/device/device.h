// Device: where bytes live. A plain value.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

enum class DeviceType : uint8_t {
  kCpu,       // streams run inline, on the caller's thread and its pool
  kAsyncCpu,  // for tests: CPU memory; every stream is a thread, so that a missing event shows as a race
  kCuda,      // a GPU, or in tests a fake one: the host must not touch its memory
  kPinned,    // page-locked host memory that GPU `index` can access too, in the order of its streams
  kMeta,      // no bytes: memory is counted and streams run nothing, for `lockstep plan`
};

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  bool has_bytes() const { return type != DeviceType::kMeta; }
  bool in_host_memory() const { return type != DeviceType::kMeta && type != DeviceType::kCuda; }
  friend bool operator==(const Device&, const Device&) = default;
};

// Host memory for data used with device `d`: pinned for a GPU. The host memory of a meta device has no bytes either.
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
