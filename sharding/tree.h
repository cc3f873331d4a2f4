// The one tree by which sums over micro-batches, and over chunks of a norm, are formed: [lo, hi) splits after the
// largest power of two below its length. Its shape depends on the length alone, so the sum's bits do not depend on who
// adds what. Plain functions and TreeStack, which merges siblings as they arrive in order.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/partition.h"

namespace lockstep {

inline int64_t tree_split(IndexRange r) {
  return r.begin + static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(r.size() - 1)));
}

// Is `r` a node of the tree over [0, total)?
inline bool is_tree_node(IndexRange r, int64_t total) {
  IndexRange at{0, total};
  while (at.size() > r.size()) {
    const int64_t middle = tree_split(at);
    if (r.end <= middle) at.end = middle;
    else if (r.begin >= middle) at.begin = middle;
    else return false;
  }
  return at == r;
}

// The largest nodes of the tree over [0, total) that lie within `range`, in order; at most about 2 log2(total).
inline std::vector<IndexRange> maximal_nodes(IndexRange range, int64_t total) {
  std::vector<IndexRange> out, todo;
  if (total > 0 && !range.empty()) todo.push_back({0, total});
  while (!todo.empty()) {
    const IndexRange r = todo.back();
    todo.pop_back();
    if (intersect(r, range).empty()) continue;
    if (range.begin <= r.begin && r.end <= range.end) {
      out.push_back(r);
      continue;
    }
    const int64_t middle = tree_split(r);
    todo.push_back({middle, r.end});
    todo.push_back({r.begin, middle});
  }
  return out;
}

// Takes nodes in order of their ranges and merges siblings at once: merge(left, right) adds right's value into left's.
template <class Value>
class TreeStack {
 public:
  explicit TreeStack(int64_t total = 0) : total_(total) {}
  template <class Merge>
  void push(IndexRange range, Value value, Merge merge) {
    check(nodes_.empty() ? true : nodes_.back().first.end == range.begin, "tree: node [", range.begin, ", ", range.end,
          ") out of order");
    nodes_.emplace_back(range, std::move(value));
    while (nodes_.size() >= 2) {
      auto& [left, into] = nodes_[nodes_.size() - 2];
      auto& [right, from] = nodes_.back();
      const IndexRange both{left.begin, right.end};
      if (!is_tree_node(both, total_) || tree_split(both) != left.end) break;
      merge(into, from);
      left = both;
      nodes_.pop_back();
    }
  }
  const std::vector<std::pair<IndexRange, Value>>& nodes() const { return nodes_; }
  std::vector<std::pair<IndexRange, Value>>& nodes() { return nodes_; }
  bool complete() const { return nodes_.size() == 1 && nodes_[0].first == IndexRange{0, total_}; }

 private:
  int64_t total_;
  std::vector<std::pair<IndexRange, Value>> nodes_;
};

}  // namespace lockstep
