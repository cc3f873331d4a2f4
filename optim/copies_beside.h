// CopiesBeside: second places for a state, which an update writes right behind the first ones, while what it computed
// is in the caches. For memory that outlives the process. Owned by who has those places; optimizers borrow it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/kernels/attention/past_caches.h"
#include "core/kernels/parallel.h"

namespace lockstep {

class CopiesBeside {
 public:
  struct Copy {
    const float* from = nullptr;
    int64_t count = 0;  // elements
    float* to = nullptr;
    int64_t done = 0;    // of them, from the first on
    bool again = false;  // some were written out of that order, or twice: `to` may be older than `from`
  };

  // From now on; nothing is copied yet.
  void begin(std::vector<Copy> copies) {
    copies_ = std::move(copies);
    std::erase_if(copies_, [](const Copy& c) { return c.count == 0; });
    std::sort(copies_.begin(), copies_.end(), [](const Copy& a, const Copy& b) { return a.from < b.from; });
  }
  void end() { copies_.clear(); }
  bool empty() const { return copies_.empty(); }

  // How many values from `at` on, of n, are copied nowhere.
  int64_t until_next(const float* at, int64_t n) const {
    const auto c = first_after(at);
    return c == copies_.end() ? n : std::clamp<int64_t>(c->from - at, 0, n);
  }
  // Values [at, at + n) have just been written. The caller ends what it writes with fence_past_caches().
  void written(Parallel& parallel, const float* at, int64_t n) {
    const float* const end = at + n;
    const Fence fence = parallel.threads() > 1 ? Fence::kHere : Fence::kLater;  // each thread has its own
    for (auto c = copies_.begin() + (first_after(at) - copies_.begin()); c != copies_.end() && c->from < end; ++c) {
      const int64_t first = std::max(at, c->from) - c->from, last = std::min(end, c->from + c->count) - c->from;
      if (c->again || first != c->done) {
        c->again = true;
        continue;
      }
      auto body = [&](int64_t begin, int64_t stop) {
        copy_past_caches(c->to + first + begin, c->from + first + begin, stop - begin, fence);
      };
      parallel.run(last - first, kLeast, body);
      c->done = last;
    }
  }

  // Is all of it there?
  bool has(const float* from, int64_t count) const {
    const auto c =
        std::partition_point(copies_.begin(), copies_.end(), [&](const Copy& one) { return one.from < from; });
    return c != copies_.end() && c->from == from && c->count == count && c->done == count && !c->again;
  }

 private:
  static constexpr int64_t kLeast = 1 << 12;  // elements that a thread copies

  std::vector<Copy>::const_iterator first_after(const float* at) const {
    return std::partition_point(copies_.begin(), copies_.end(),
                                [&](const Copy& one) { return one.from + one.count <= at; });
  }

  std::vector<Copy> copies_;
};

}  // namespace lockstep
