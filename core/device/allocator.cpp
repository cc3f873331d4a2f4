#include "core/device/allocator.h"

#include <sys/mman.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

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

struct Block {
  int64_t size;
  bool free;
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
  void* allocate(int64_t bytes) {
    bytes = round_up(bytes > 0 ? bytes : 1, kAlign);
    std::lock_guard lock(mutex_);
    void* data = kCaching ? take(bytes) : system_block(bytes);
    stats_.bytes_in_use += bytes;
    if (stats_.bytes_in_use > stats_.peak_bytes) stats_.peak_bytes = stats_.bytes_in_use;
    return data;
  }

  void release(void* data) {
    if (!data) return;
    std::lock_guard lock(mutex_);
    auto it = blocks_.find(static_cast<char*>(data));
    stats_.bytes_in_use -= it->second.size;
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
    stats_.peak_bytes = stats_.bytes_in_use;
  }

 private:
  void* system_block(int64_t bytes) {
    void* data = std::aligned_alloc(static_cast<size_t>(kAlign), static_cast<size_t>(bytes));
    check(data != nullptr, "out of memory: ", bytes, " bytes asked for, ", stats_.bytes_in_use, " in use");
    blocks_[static_cast<char*>(data)] = {bytes, false, 0, nullptr, nullptr};
    ++stats_.system_allocations;
    return data;
  }

  void* take(int64_t bytes) {
    auto fit = free_.lower_bound({bytes, 0, nullptr});
    if (fit == free_.end()) {
      grow(bytes);
      fit = free_.lower_bound({bytes, 0, nullptr});
    }
    char* data = fit->data;
    free_.erase(fit);
    Block& block = blocks_[data];
    block.free = false;
    if (block.size - bytes >= kAlign) {
      char* rest = data + bytes;
      Block tail{block.size - bytes, false, 0, data, block.next};
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

  void grow(int64_t bytes) {
    const int64_t size = round_up(bytes > kSegment ? bytes : kSegment, kHugePage);
    void* raw = mmap(nullptr, static_cast<size_t>(size + kHugePage), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(raw != MAP_FAILED, "out of memory: ", bytes, " bytes asked for, ", stats_.bytes_in_use, " in use, ",
          stats_.bytes_reserved, " reserved");
    auto address = reinterpret_cast<uintptr_t>(raw);
    char* data =
        static_cast<char*>(raw) + (round_up(static_cast<int64_t>(address), kHugePage) - static_cast<int64_t>(address));
    madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE);  // a page fault costs 2 us; a refusal costs only time
    ++stats_.system_allocations;
    stats_.bytes_reserved += size;
    give(data, {size, false, 0, nullptr, nullptr});
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

}  // namespace

void* allocate_bytes(int64_t bytes) { return arena().allocate(bytes); }
void free_bytes(void* data) noexcept { arena().release(data); }
AllocatorStats allocator_stats() { return arena().stats(); }
void reset_peak_bytes() { arena().reset_peak(); }

}  // namespace lockstep
