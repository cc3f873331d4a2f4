#include "core/device/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/base/partition.h"

namespace lockstep {
namespace {

constexpr int64_t kAlign = 256;
constexpr int64_t kSegment = int64_t(64) << 20;
constexpr int64_t kHugePage = int64_t(2) << 20;

// Sanitizers follow malloc, not our blocks: there every tensor is an allocation of its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCaching = false;
#else
constexpr bool kCaching = true;
#endif

int64_t rounded(int64_t bytes) { return round_up(bytes > 0 ? bytes : 1, kAlign); }

// Both allocators count alike.
void count_in(AllocatorStats& s, int64_t bytes, MemoryUse use) {
  const auto i = static_cast<size_t>(use);
  s.peak_by_use[i] = std::max(s.peak_by_use[i], s.by_use[i] += bytes);
  s.peak_bytes = std::max(s.peak_bytes, s.bytes_in_use += bytes);
}
void count_out(AllocatorStats& s, int64_t bytes, MemoryUse use) {
  s.by_use[static_cast<size_t>(use)] -= bytes;
  s.bytes_in_use -= bytes;
}
void restart_peak(AllocatorStats& s) {
  s.peak_bytes = s.bytes_in_use;
  s.peak_by_use = s.by_use;
}

struct Block {
  int64_t size;
  bool free;
  MemoryUse use;
  uint64_t freed_at;  // the newest of equal blocks is taken first: it is still in cache
  char* previous;     // neighbours within the segment; null at its ends
  char* next;
};

struct ByFit {
  int64_t size;
  uint64_t age;  // ~freed_at
  char* data;
  bool operator<(const ByFit& o) const {
    return size != o.size ? size < o.size : age != o.age ? age < o.age : data < o.data;
  }
};

class Arena {
 public:
  void* allocate(int64_t bytes, MemoryUse use) {
    bytes = rounded(bytes);
    std::lock_guard lock(mutex_);
    void* data = kCaching ? take(bytes, use) : system_block(bytes, use);
    count_in(stats_, bytes, use);
    return data;
  }

  void release(void* data) {
    if (!data) return;
    std::lock_guard lock(mutex_);
    auto it = blocks_.find(static_cast<char*>(data));
    count_out(stats_, it->second.size, it->second.use);
    if (!kCaching) {
      blocks_.erase(it);
      std::free(data);
      return;
    }
    give(it->first, it->second);
  }

  AllocatorStats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    std::lock_guard lock(mutex_);
    restart_peak(stats_);
  }

 private:
  [[noreturn]] void out_of_memory(int64_t bytes, MemoryUse use) const {
    throw Error(ExitCode::kInternal,
                cat("out of memory: ", bytes, " bytes asked for (", use, "), ", stats_.bytes_in_use, " in use (",
                    census_text(stats_.by_use), "), ", stats_.bytes_reserved, " reserved"));
  }

  void* system_block(int64_t bytes, MemoryUse use) {
    void* data = std::aligned_alloc(static_cast<size_t>(kAlign), static_cast<size_t>(bytes));
    if (!data) out_of_memory(bytes, use);
    blocks_[static_cast<char*>(data)] = {bytes, false, use, 0, nullptr, nullptr};
    ++stats_.system_allocations;
    return data;
  }

  void* take(int64_t bytes, MemoryUse use) {
    auto fit = free_.lower_bound({bytes, 0, nullptr});
    if (fit == free_.end()) {
      grow(bytes, use);
      fit = free_.lower_bound({bytes, 0, nullptr});
    }
    char* data = fit->data;
    free_.erase(fit);
    Block& block = blocks_[data];
    block.free = false;
    block.use = use;
    if (block.size - bytes >= kAlign) {
      char* rest = data + bytes;
      Block tail{block.size - bytes, false, use, 0, data, block.next};
      if (block.next) blocks_[block.next].previous = rest;
      block.next = rest;
      block.size = bytes;
      Block& placed = blocks_[rest] = tail;
      give(rest, placed);
    }
    return data;
  }

  void give(char* data, Block block) {
    if (block.next && blocks_[block.next].free) {
      Block& next = blocks_[block.next];
      free_.erase({next.size, ~next.freed_at, block.next});
      block.size += next.size;
      char* beyond = next.next;
      blocks_.erase(block.next);
      block.next = beyond;
      if (beyond) blocks_[beyond].previous = data;
    }
    if (block.previous && blocks_[block.previous].free) {
      char* head = block.previous;
      Block& previous = blocks_[head];
      free_.erase({previous.size, ~previous.freed_at, head});
      previous.size += block.size;
      previous.next = block.next;
      if (block.next) blocks_[block.next].previous = head;
      blocks_.erase(data);
      data = head;
      block = previous;
    }
    block.free = true;
    block.freed_at = ++clock_;
    blocks_[data] = block;
    free_.insert({block.size, ~block.freed_at, data});
  }

  void grow(int64_t bytes, MemoryUse use) {
    const int64_t size = round_up(bytes > kSegment ? bytes : kSegment, kHugePage);
    void* raw = mmap(nullptr, static_cast<size_t>(size + kHugePage), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) out_of_memory(bytes, use);
    auto address = reinterpret_cast<uintptr_t>(raw);
    char* data =
        static_cast<char*>(raw) + (round_up(static_cast<int64_t>(address), kHugePage) - static_cast<int64_t>(address));
    madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE);  // a page fault costs 2 us; a refusal costs only time
    ++stats_.system_allocations;
    stats_.bytes_reserved += size;
    give(data, {size, false, use, 0, nullptr, nullptr});
  }

  std::mutex mutex_;
  std::unordered_map<char*, Block> blocks_;
  std::set<ByFit> free_;
  uint64_t clock_ = 0;
  AllocatorStats stats_;
};

// Never destroyed: tensors of other static objects may outlive it.
Arena& arena() {
  static Arena* instance = new Arena;
  return *instance;
}

// A meta device's: sizes without memory.
class Counter {
 public:
  void* allocate(int64_t bytes, MemoryUse use) {
    bytes = rounded(bytes);
    std::lock_guard lock(mutex_);
    // Not one address of them is ever mapped (it is no canonical one on any 64-bit machine), nor given out twice.
    void* data = reinterpret_cast<void*>(next_);
    next_ += static_cast<uintptr_t>(bytes);
    blocks_[data] = {bytes, use};
    count_in(stats_, bytes, use);
    return data;
  }
  void release(void* data) {
    if (!data) return;
    std::lock_guard lock(mutex_);
    auto it = blocks_.find(data);
    count_out(stats_, it->second.first, it->second.second);
    blocks_.erase(it);
  }
  AllocatorStats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    std::lock_guard lock(mutex_);
    restart_peak(stats_);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::pair<int64_t, MemoryUse>> blocks_;
  uintptr_t next_ = uintptr_t(1) << 60;
  AllocatorStats stats_;
};

struct Counters {
  std::mutex mutex;
  std::vector<std::unique_ptr<Counter>> all;
};
Counters& counters() {
  static Counters* instance = new Counters;
  return *instance;
}
Counter& counter_of(const Device& device) {
  std::lock_guard lock(counters().mutex);
  check(device.index >= 0 && device.index < static_cast<int>(counters().all.size()), "there is no device ", device);
  return *counters().all[static_cast<size_t>(device.index)];
}

}  // namespace

void* allocate_bytes(int64_t bytes, const Device& device, MemoryUse use) {
  return device.has_bytes() ? arena().allocate(bytes, use) : counter_of(device).allocate(bytes, use);
}
void free_bytes(void* data, const Device& device) noexcept {
  if (device.has_bytes()) arena().release(data);
  else counter_of(device).release(data);
}
AllocatorStats allocator_stats(const Device& device) {
  return device.has_bytes() ? arena().stats() : counter_of(device).stats();
}
void reset_peak_bytes(const Device& device) {
  if (device.has_bytes()) arena().reset_peak();
  else counter_of(device).reset_peak();
}

Device new_meta_device() {
  std::lock_guard lock(counters().mutex);
  counters().all.push_back(std::make_unique<Counter>());
  return {DeviceType::kMeta, static_cast<int>(counters().all.size()) - 1};
}

std::string census_text(const BytesByUse& bytes) {
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  std::string out;
  for (size_t i : order)
    if (bytes[i] > 0) out += cat(out.empty() ? "" : ", ", static_cast<MemoryUse>(i), " ", bytes[i]);
  return out;
}

}  // namespace lockstep
