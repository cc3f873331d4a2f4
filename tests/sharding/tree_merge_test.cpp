// One pass over many buffers has the bits of adding them pair by pair, whoever holds which nodes.
#include "sharding/tree_merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/base/philox.h"
#include "core/device/context.h"
#include "sharding/tree.h"

namespace lockstep::tree_merge_test {
namespace {

using Values = std::vector<float>;

Values values_of(int64_t n, int64_t buffer) {
  Values v;
  for (int64_t i = 0; i < n; ++i) {
    const Philox4 r = philox(5, static_cast<uint64_t>(i), static_cast<uint64_t>(buffer));
    v.push_back(std::ldexp(static_cast<float>(static_cast<int32_t>(r.v[0])), static_cast<int>(r.v[1] % 40)));
  }
  return v;
}

// Micro-batches [0, total) of `ranks` ranks, whose nodes come in their order. `copies`: buffers are copied into
// scratch, as from another process; every second one where 2.
void compare(int64_t total, IndexRange held, int ranks, int64_t n, int copies) {
  SCOPED_TRACE(str("[", held.begin, ", ", held.end, ") of ", total, " on ", ranks, " ranks, ", n, " elements"));
  std::vector<IndexRange> ranges;
  for (int r = 0; r < ranks; ++r) {
    const IndexRange part = split_evenly(held.size(), ranks, r);
    for (const IndexRange& node : maximal_nodes({held.begin + part.begin, held.begin + part.end}, total))
      ranges.push_back(node);
  }
  std::vector<Values> buffers;
  TreeStack<Values> expected(total);
  for (size_t i = 0; i < ranges.size(); ++i) {
    buffers.push_back(values_of(n, static_cast<int64_t>(i)));
    expected.push(ranges[i], buffers.back(), [](Values& left, const Values& right) {
      for (size_t k = 0; k < left.size(); ++k) left[k] += right[k];
    });
  }
  const TreeMerge merge(ranges, total);
  std::vector<Values> sums(merge.results().size(), Values(static_cast<size_t>(n), NAN));
  std::vector<float*> outs;
  for (Values& s : sums) outs.push_back(s.data());
  const TreeMerge::Buffer buffer = [&](size_t i, int64_t at, int64_t size, float* scratch) -> const float* {
    const float* there = buffers[i].data() + at;
    if (copies == 0 || (copies == 2 && i % 2 == 0)) return there;
    memcpy(scratch, there, static_cast<size_t>(size) * sizeof(float));
    return scratch;
  };
  current_stream().enqueue([&](Parallel& p) { merge.run(p, buffer, outs, n); });
  current_stream().synchronize();
  ASSERT_EQ(merge.results().size(), expected.nodes().size());
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(merge.results()[i], expected.nodes()[i].first);
    EXPECT_EQ(memcmp(sums[i].data(), expected.nodes()[i].second.data(), static_cast<size_t>(n) * sizeof(float)), 0);
  }
}

TEST(TreeMerge, HasTheBitsOfAddingPairByPair) {
  for (int copies : {0, 1, 2})
    for (int64_t total : {1, 2, 3, 5, 8, 11, 20, 24})
      for (int ranks : {1, 2, 3, 4, 7}) compare(total, {0, total}, ranks, 131, copies);
}

TEST(TreeMerge, LeavesNodesThatDoNotJoinYet) {
  for (int copies : {0, 1})
    for (const IndexRange held : {IndexRange{0, 3}, {3, 6}, {5, 9}, {1, 11}, {10, 11}})
      compare(11, held, 3, 70, copies);
}

TEST(TreeMerge, GoesThroughLongBuffersInPieces) {
  for (int copies : {0, 2})
    for (int64_t n : {65536, 200000}) compare(6, {0, 6}, 4, n, copies);
  compare(4, {0, 4}, 2, 0, 1);
}

}  // namespace
}  // namespace lockstep::tree_merge_test
