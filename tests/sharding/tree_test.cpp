// The tree of sums: any partition's maximal nodes join to the whole, and to the same bits.
#include "sharding/tree.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/philox.h"
#include "core/device/context.h"
#include "core/kernels/kernels.h"

namespace lockstep::tree_test {
namespace {

// The tree by its definition.
void nodes_of_tree(IndexRange r, std::vector<IndexRange>& out) {
  out.push_back(r);
  if (r.size() < 2) return;
  int64_t left = 1;
  while (left * 2 < r.size()) left *= 2;
  nodes_of_tree({r.begin, r.begin + left}, out);
  nodes_of_tree({r.begin + left, r.end}, out);
}

std::vector<double> values_of(int64_t n) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) {
    const Philox4 r = philox(3, static_cast<uint64_t>(i), 0);
    v.push_back(
        std::ldexp(static_cast<double>(r.v[0]) - 0x1p31, static_cast<int>(r.v[1] % 60)));  // rounding everywhere
  }
  return v;
}

std::vector<IndexRange> random_partition(int64_t total, int parts, uint64_t seed) {
  std::vector<int64_t> cuts{0, total};
  for (int i = 1; i < parts; ++i) cuts.push_back(philox(seed, static_cast<uint64_t>(i), 1).v[0] % (total + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<IndexRange> out;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) out.push_back({cuts[i], cuts[i + 1]});
  return out;
}

// As the kernel adds values[r.begin .. r.end).
double tree_sum(std::vector<double> values, IndexRange r) {
  const int64_t range[2] = {r.begin, r.end};
  double sum = 0;
  TreeSumsArgs a;
  a.values = values.data(), a.ranges = range, a.count = 1, a.out = &sum;
  current_stream().enqueue([&](Parallel& p) { kernels(p).tree_sums(p, a); });
  return sum;
}

TEST(Tree, ItsNodesAreThoseOfItsDefinition) {
  for (int64_t total = 1; total <= 40; ++total) {
    std::vector<IndexRange> nodes;
    nodes_of_tree({0, total}, nodes);
    for (int64_t b = 0; b < total; ++b)
      for (int64_t e = b + 1; e <= total; ++e)
        ASSERT_EQ(is_tree_node({b, e}, total), std::find(nodes.begin(), nodes.end(), IndexRange{b, e}) != nodes.end())
            << "[" << b << ", " << e << ") of " << total;
  }
}

TEST(Tree, MaximalNodesTileTheirRangeAndAreFew) {
  for (int64_t total = 1; total <= 70; ++total)
    for (int64_t b = 0; b <= total; ++b)
      for (int64_t e = b; e <= total; ++e) {
        const auto nodes = maximal_nodes({b, e}, total);
        int64_t at = b;
        for (const IndexRange& n : nodes) {
          ASSERT_EQ(n.begin, at);
          ASSERT_TRUE(is_tree_node(n, total));
          at = n.end;
        }
        ASSERT_EQ(at, e);
        ASSERT_LE(static_cast<double>(nodes.size()), 2 * std::log2(static_cast<double>(total)) + 1);
      }
}

TEST(Tree, AnyPartitionJoinsToTheWholeAndToTheSameBits) {
  for (int64_t total : {1, 2, 3, 5, 7, 8, 13, 64, 100, 257}) {
    const auto v = values_of(total);
    const double expected = tree_sum(v, {0, total});
    for (uint64_t seed = 0; seed < 40; ++seed) {
      TreeStack<double> stack(total);
      for (const IndexRange& part : random_partition(total, 1 + static_cast<int>(seed % 6), seed))
        for (const IndexRange& node : maximal_nodes(part, total))
          stack.push(node, tree_sum(v, node), [](double& into, double from) { into += from; });
      ASSERT_TRUE(stack.complete());
      ASSERT_EQ(stack.nodes()[0].second, expected) << total << " values, seed " << seed;
    }
  }
}

TEST(Tree, OneByOneHoldsFewNodesAtATime) {
  const int64_t total = 1000;
  const auto v = values_of(total);
  TreeStack<double> stack(total);
  size_t most = 0;
  for (int64_t i = 0; i < total; ++i) {
    stack.push({i, i + 1}, v[static_cast<size_t>(i)], [](double& into, double from) { into += from; });
    most = std::max(most, stack.nodes().size());
  }
  EXPECT_TRUE(stack.complete());
  EXPECT_EQ(stack.nodes()[0].second, tree_sum(v, {0, total}));
  EXPECT_LE(most, 11u);
}

TEST(Tree, NodesOutOfOrderAreAnError) {
  TreeStack<double> stack(4);
  auto join = [](double& into, double from) { into += from; };
  stack.push({0, 1}, 1, join);
  EXPECT_THROW(stack.push({2, 3}, 1, join), Error);
}

}  // namespace
}  // namespace lockstep::tree_test
