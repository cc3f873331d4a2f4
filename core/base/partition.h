// Partitions: who owns which micro-batches and which slice of a range. Pure arithmetic.
// Plain functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep {

struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

inline IndexRange intersect(IndexRange a, IndexRange b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t multiple) { return ceil_div(a, multiple) * multiple; }

// Calls visit(piece) for consecutive pieces of `all`, of at most `most` each.
template <class Visit>
void for_each_piece(IndexRange all, int64_t most, const Visit& visit) {
  for (int64_t at = all.begin; at < all.end; at += most) visit(IndexRange{at, std::min(at + most, all.end)});
}

// Part `index` of [0, n) cut into `parts` contiguous pieces whose sizes differ by one at most, larger ones first.
inline IndexRange split_evenly(int64_t n, int64_t parts, int64_t index) {
  int64_t base = n / parts, extra = n % parts;
  int64_t begin = index * base + std::min(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

// How a step's micro-batches [0, count) are dealt to ranks (docs/exactness.md).
enum class MicroSchedule {
  kLocal,  // rank r owns one contiguous range
  kWaves,  // micro-batch i runs on rank i mod size
};

// The micro-batches of `rank`, in the order in which it runs them.
inline std::vector<int64_t> micro_batches_of(MicroSchedule schedule, int64_t count, int rank, int size) {
  std::vector<int64_t> mine;
  if (schedule == MicroSchedule::kLocal) {
    IndexRange r = split_evenly(count, size, rank);
    for (int64_t i = r.begin; i < r.end; ++i) mine.push_back(i);
  } else {
    for (int64_t i = rank; i < count; i += size) mine.push_back(i);
  }
  return mine;
}

}  // namespace lockstep
