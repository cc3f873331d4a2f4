#include "sharding/tree_merge.h"

#include <algorithm>
#include <cstring>

#include "sharding/tree.h"

namespace lockstep {
namespace {

// Elements added at a time: a system call reads so many of another process, and a few such pieces stay in the second
// cache.
constexpr int64_t kPiece = 65536;

// A node of the tree over one piece: where it lies, and in which scratch memory that is; -1: in none.
struct Open {
  const float* at;
  int scratch;
};

void add(float* sum, const float* left, const float* right, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) sum[i] = left[i] + right[i];
}

}  // namespace

TreeMerge::TreeMerge(const std::vector<IndexRange>& ranges, int64_t total) {
  TreeStack<char> stack(total);
  std::vector<IndexRange> last;  // what each source completes
  for (const IndexRange& range : ranges) {
    Source source;
    stack.push(range, 0, [&](char, char) { ++source.joins; });
    most_open_ = std::max(most_open_, stack.nodes().size() + static_cast<size_t>(source.joins));
    sources_.push_back(source);
    last.push_back(stack.nodes().back().first);
  }
  for (const auto& [range, value] : stack.nodes()) {
    const auto at = std::find(last.begin(), last.end(), range);
    sources_[static_cast<size_t>(at - last.begin())].result = static_cast<int>(results_.size());
    results_.push_back(range);
  }
}

void TreeMerge::run(Parallel& parallel, const Buffer& buffer, const std::vector<float*>& outs, int64_t n) const {
  auto body = [&](int64_t begin, int64_t end) {
    // Of each node that is open a piece, and of the one that joins it.
    std::vector<std::vector<float>> memory(most_open_ + 1);
    std::vector<int> unused;
    for (size_t i = memory.size(); i-- > 0;) unused.push_back(static_cast<int>(i));
    const auto take = [&] {
      const int i = unused.back();
      unused.pop_back();
      memory[static_cast<size_t>(i)].resize(static_cast<size_t>(std::min(kPiece, end - begin)));
      return i;
    };
    const auto give = [&](int i) {
      if (i >= 0) unused.push_back(i);
    };
    std::vector<Open> open;
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t size = std::min(kPiece, end - at);
      open.clear();
      for (size_t s = 0; s < sources_.size(); ++s) {
        const int scratch = take();
        float* copy = memory[static_cast<size_t>(scratch)].data();
        const float* there = buffer(s, at, size, copy);
        if (there != copy) give(scratch);
        open.push_back({there, there == copy ? scratch : -1});
        float* out = sources_[s].result < 0 ? nullptr : outs[static_cast<size_t>(sources_[s].result)] + at;
        for (int join = sources_[s].joins; join > 0; --join) {
          const Open right = open.back();
          open.pop_back();
          Open& left = open.back();
          const int own = left.scratch >= 0 ? left.scratch : right.scratch >= 0 ? right.scratch : take();
          if (own != right.scratch) give(right.scratch);
          float* sum = join == 1 && out ? out : memory[static_cast<size_t>(own)].data();
          add(sum, left.at, right.at, size);
          left = {sum, own};
        }
        if (!out) continue;
        if (open.back().at != out) memcpy(out, open.back().at, static_cast<size_t>(size) * sizeof(float));
        give(open.back().scratch);
        open.back() = {out, -1};
      }
    }
  };
  parallel.run(n, kPiece, body);
}

}  // namespace lockstep
