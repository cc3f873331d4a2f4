// MemoryLedger: counts what the bytes of one allocator are for, now and when they were most. Owned by the allocator,
// which guards it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/device/allocator.h"
#include "core/device/memory_peak.h"

namespace lockstep {

class MemoryLedger {
 public:
  using Owner = uint32_t;  // a use together with a name

  Owner owner_of(MemoryUse use, std::string_view whom);
  void count_in(int64_t bytes, Owner owner);
  void count_out(int64_t bytes, Owner owner);

  AllocatorStats& stats() { return stats_; }
  const AllocatorStats& stats() const { return stats_; }
  void restart_peak();
  void pause(int more) { pauses_ += more; }  // while there are any, no peak rises
  MemoryPeak peak() const { return told(peak_); }
  MemoryPeak take_peak();
  std::vector<MemoryShare> held() const { return shares_of(bytes_); }
  void sample(bool on);
  std::vector<MemorySample> take_samples();

 private:
  struct Named {
    MemoryUse use;
    const std::string* whom;  // a key of by_name_
  };
  // The most since some time. A copy of what was held then is made when memory is freed for the first time after it: a
  // step that does not exceed its peak copies nothing.
  struct Mark {
    int64_t bytes = 0;
    bool now = false;          // the peak is now
    Owner owner = UINT32_MAX;  // the last to allocate; none so far
    const char* op = nullptr;
    bool backward = false;
    std::vector<int64_t> held;
  };
  void rise(Mark& mark, Owner owner) const;
  void leave(Mark& mark) const;
  void restart(Mark& mark) const;
  MemoryPeak told(const Mark& mark) const;
  std::vector<MemoryShare> shares_of(const std::vector<int64_t>& bytes) const;
  void add_sample();

  AllocatorStats stats_;
  std::vector<Named> owners_;
  std::vector<int64_t> bytes_;  // in use, of each owner
  std::unordered_map<std::string, std::array<Owner, kMemoryUses>> by_name_;
  std::pair<const std::string, std::array<Owner, kMemoryUses>>* last_ = nullptr;  // that was asked for
  Mark peak_, taken_;
  int pauses_ = 0;
  bool sampling_ = false;
  std::vector<MemorySample> samples_;
  int64_t sampled_bytes_ = 0;
};

}  // namespace lockstep
