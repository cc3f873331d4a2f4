#include "core/device/block_pool.h"

#include "core/base/partition.h"

namespace lockstep {
namespace {
constexpr int64_t kSegment = int64_t(64) << 20;
}  // namespace

char* Pool::take(int64_t bytes, uint32_t owner, std::unique_lock<std::mutex>& lock) {
  auto fit = free_.lower_bound({bytes, 0, nullptr});
  while (fit == free_.end()) {  // another may be faster to take what grew
    if (!grow(bytes, lock)) return nullptr;
    fit = free_.lower_bound({bytes, 0, nullptr});
  }
  char* data = fit->data;
  free_.erase(fit);
  Block& block = blocks_[data];
  block.free = false;
  block.owner = owner;
  if (block.size - bytes >= kAlign) {
    char* rest = data + bytes;
    Block tail{block.size - bytes, false, owner, 0, data, block.next, this};
    if (block.next) blocks_[block.next].previous = rest;
    block.next = rest;
    block.size = bytes;
    Block& placed = blocks_[rest] = tail;
    give(rest, placed);
  }
  return data;
}

void Pool::give(char* data, Block block) {
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

void Pool::trim() {
  for (auto it = free_.begin(); it != free_.end();) {
    const Block& block = blocks_[it->data];
    if (block.previous || block.next) {
      ++it;
      continue;
    }
    stats_.bytes_reserved -= block.size;
    source_.give_back(it->data);
    blocks_.erase(it->data);
    it = free_.erase(it);
  }
}

bool Pool::grow(int64_t bytes, std::unique_lock<std::mutex>& lock) {
  int64_t size = round_up(bytes > kSegment ? bytes : kSegment, kHugePage);
  lock.unlock();
  char* data = source_.take(size);
  if (!data && bytes < kSegment) data = source_.take(size = round_up(bytes, kHugePage));
  lock.lock();
  if (!data) return false;
  ++stats_.system_allocations;
  stats_.bytes_reserved += size;
  give(data, {size, false, 0, 0, nullptr, nullptr, this});
  return true;
}

}  // namespace lockstep
