// Device: where bytes live. A plain value.
// Knows nothing of memory or streams.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

enum class DeviceType : uint8_t {
  kCpu,       // streams run inline, on the caller's thread and its pool
  kAsyncCpu,  // for tests: CPU memory whose every stream is a thread of its own, so that a missing event is a race
  kMeta,      // no bytes: memory is counted and streams run nothing, so that a step can be planned without its machine
};

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  bool has_bytes() const { return type != DeviceType::kMeta; }
  friend bool operator==(const Device&, const Device&) = default;
};

// Where the host keeps what belongs to work on `d` but stays off it. What has no bytes has none there either.
inline Device host_memory_of(const Device& d) { return d.has_bytes() ? Device{} : d; }

inline std::string to_text(const Device& d) {
  const char* const kNames[] = {"cpu", "async-cpu", "meta"};
  return kNames[static_cast<int>(d.type)] + (d.index ? ":" + std::to_string(d.index) : "");
}

}  // namespace lockstep
