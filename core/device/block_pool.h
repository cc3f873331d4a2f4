// Pool: blocks cut from large segments, merged when freed. Owned by the allocator, which guards it, and the table of
// blocks that its pools share.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>

#include "core/base/error.h"
#include "core/device/allocator.h"

namespace lockstep {

class Pool;

struct Block {
  int64_t size;
  bool free;
  uint32_t owner;     // MemoryLedger::Owner
  uint64_t freed_at;  // the newest of equal blocks is taken first: it is still in cache
  char* previous;     // neighbours within the segment; null at its ends
  char* next;
  Pool* pool;
};

using Blocks = std::unordered_map<char*, Block>;

// Where segments come from. Thread-safe; calls may take long.
class Source {
 public:
  virtual ~Source() = default;
  virtual char* take(int64_t bytes) = 0;  // null if memory ran out
  virtual void give_back(char* data) { check(false, "this memory is kept"); }
  virtual std::string rest_text() const { return ""; }
};

// Blocks that can be reused at once when freed: those of the CPU, or of one stream.
class Pool {
 public:
  static constexpr int64_t kAlign = 256;
  static constexpr int64_t kHugePage = int64_t(2) << 20;

  // Adds the segments taken from the source to `stats`.
  Pool(Blocks& blocks, Source& source, AllocatorStats& stats) : blocks_(blocks), source_(source), stats_(stats) {}

  // `bytes`: a multiple of kAlign. Null if the source ran out. `lock` guards the pool; it is released while the source
  // allocates, which may take long (pinning a gigabyte takes a second).
  char* take(int64_t bytes, uint32_t owner, std::unique_lock<std::mutex>& lock);
  bool fits(int64_t bytes) const { return free_.lower_bound({bytes, 0, nullptr}) != free_.end(); }
  void give(char* data, Block block);
  void trim();  // returns unused segments to the source

 private:
  struct ByFit {
    int64_t size;
    uint64_t age;  // ~freed_at
    char* data;
    bool operator<(const ByFit& o) const {
      return size != o.size ? size < o.size : age != o.age ? age < o.age : data < o.data;
    }
  };
  bool grow(int64_t bytes, std::unique_lock<std::mutex>& lock);

  Blocks& blocks_;
  Source& source_;
  AllocatorStats& stats_;
  std::set<ByFit> free_;
  uint64_t clock_ = 0;
};

}  // namespace lockstep
