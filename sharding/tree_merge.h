// TreeMerge: which of many buffers are added to which, in the order of the tree over micro-batches (sharding/tree.h),
// and the addition of all of them in one pass. A plain value.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/partition.h"
#include "core/device/stream.h"

namespace lockstep {

class TreeMerge {
 public:
  // `ranges`: of the buffers, nodes of the tree over [0, total), in order.
  TreeMerge(const std::vector<IndexRange>& ranges, int64_t total);

  // The largest nodes that the buffers join to, in order.
  const std::vector<IndexRange>& results() const { return results_; }

  // Elements [at, at + size) of buffer `index`: where they lie, or copied into `scratch`, which holds as many. From any
  // thread.
  using Buffer = std::function<const float*(size_t index, int64_t at, int64_t size, float* scratch)>;
  // outs[j][i] = the sum of what joins to node j, for i in [0, n). The bits are those of adding the buffers pair by
  // pair. An output is none of the buffers. Each element is read once and written once.
  void run(Parallel& parallel, const Buffer& buffer, const std::vector<float*>& outs, int64_t n) const;

 private:
  struct Source {
    int joins = 0;    // how often the last two nodes join, once it is there
    int result = -1;  // which result that completes; -1: none
  };
  std::vector<Source> sources_;
  std::vector<IndexRange> results_;
  size_t most_open_ = 0;  // nodes at a time
};

}  // namespace lockstep
