// What held a device's memory when it was most: by use, and by the module, operation or group that allocated it
// (context().memory_for). Plain values, and their text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/device/allocator.h"

namespace lockstep {

struct MemoryShare {
  MemoryUse use;
  std::string whom;  // "blocks.3.mlp.up"; empty: nobody was named
  int64_t bytes;
};

struct MemoryPeak {
  int64_t bytes = 0;
  std::string whom, op;  // who allocated last, in which operation; may be empty
  bool backward = false;
  std::vector<MemoryShare> shares;  // largest first; together `bytes`
};

// What is in use at some time.
struct MemorySample {
  int64_t time_ns = 0;  // by the clock of spans
  BytesByUse by_use{};
};

// Of all that was allocated since reset_peak_bytes, by all ranks of this process that use the device.
MemoryPeak memory_peak(const Device& device = {});
// The most since the last call, or since the program began.
MemoryPeak take_memory_peak(const Device& device = {});
// Begins or ends to sample what is in use, whenever it has changed by 1% of the peak.
void sample_memory(const Device& device, bool on);
// Those since the last call, at most 20,000.
std::vector<MemorySample> take_memory_samples(const Device& device = {});

// What is allocated in this scope, by any thread, is in no peak: it is not the run's.
class WithoutMemoryPeak {
 public:
  explicit WithoutMemoryPeak(const Device& device);
  ~WithoutMemoryPeak();
  WithoutMemoryPeak(const WithoutMemoryPeak&) = delete;

 private:
  const Device device_;
};

// "in the backward pass of blocks.7.mlp (matmul): activations 61% (blocks.0-11 58%, head 3%), parameters 39%": modules
// that differ in a number are one, and small shares are left out.
std::string peak_text(const MemoryPeak& peak);
// Of shares alone: "activations 61% (blocks.0-11 58%, head 3%), parameters 39%".
std::string shares_text(const std::vector<MemoryShare>& shares);

}  // namespace lockstep
