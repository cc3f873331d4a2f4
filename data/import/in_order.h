// Work on the items of a stream by several threads, with results in the order of the items: one reads, all work, the
// caller uses. Plain functions; memory is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep {

// The same of items that are known by their slot, a number below `slots`, which is free again once it was used.
void run_in_order(int threads, size_t slots, const std::function<int64_t(size_t slot)>& next,
                  const std::function<void(size_t slot, int thread)>& work,
                  const std::function<void(size_t slot)>& use);

constexpr int64_t kBytesInFlight = 4 << 20;  // for each thread
constexpr size_t kItemsInFlight = 3;         // likewise

// next(item): reads the next item into a new one, and returns its bytes, 0 at the end; one call at a time, on any
// thread. work(item, thread): on `threads` threads, numbered from 0, several items at a time. use(item): on the
// caller's thread, in order. No more is read while kBytesInFlight for each thread wait to be used. An exception is
// rethrown where its item would be used, after all items before it were; the rest is dropped.
template <class Item, class Next, class Work, class Use>
void in_order(int threads, Next next, Work work, Use use) {
  std::vector<Item> items(threads > 1 ? kItemsInFlight * static_cast<size_t>(threads) : 1);
  run_in_order(
      threads, items.size(),
      [&](size_t slot) {
        items[slot] = Item();
        return next(items[slot]);
      },
      [&](size_t slot, int thread) { work(items[slot], thread); }, [&](size_t slot) { use(items[slot]); });
}

}  // namespace lockstep
