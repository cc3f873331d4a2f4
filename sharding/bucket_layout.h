// BucketLayout: which slice of which parameter lies where in a bucket's flat buffer, and which part of the buffer each
// rank owns. A plain value: pure arithmetic.
#pragma once

#include <string>
#include <vector>

#include "core/base/partition.h"
#include "core/base/shape.h"
#include "core/base/state_chunk.h"

namespace lockstep {

class BucketLayout {
 public:
  // Parameters start at multiples of kUnit elements (256 bytes), and so do ranks' slices: a chunk of kUnit elements has
  // one owner.
  static constexpr int64_t kUnit = kStateChunk;

  struct Member {
    std::string name;
    Shape shape;
    int64_t offset;  // in the flat buffer, elements
    int64_t numel() const { return shape.numel(); }
    int64_t chunks() const { return ceil_div(shape.numel(), kUnit); }
  };
  // Part of a parameter within a range of the flat buffer.
  struct Overlap {
    int member;           // index
    IndexRange elements;  // of the flattened parameter
    IndexRange chunks;    // elements / kUnit
  };

  int add(std::string name, const Shape& shape) {
    members_.push_back({std::move(name), shape, total_});
    total_ += round_up(shape.numel(), kUnit);
    return static_cast<int>(members_.size()) - 1;
  }
  // After the last member: lengthens the buffer so that cut() makes `parts` equal parts, which collectives take whole
  // (NCCL gathers parts of different sizes by one broadcast each), unless that adds more than a sixteenth.
  void even_out(int parts) {
    const int64_t even = round_up(total_, kUnit * parts);
    if (even - total_ <= total_ / 16) total_ = even;
  }
  const std::vector<Member>& members() const { return members_; }
  int64_t total() const { return total_; }  // elements, a multiple of kUnit

  // Part `index` of `range`, cut evenly into `parts` at multiples of kUnit.
  static IndexRange cut(IndexRange range, int parts, int index) {
    const IndexRange units = split_evenly(range.size() / kUnit, parts, index);
    return {range.begin + units.begin * kUnit, range.begin + units.end * kUnit};
  }
  static std::vector<int64_t> cut_sizes(IndexRange range, int parts) {
    std::vector<int64_t> out;
    for (int i = 0; i < parts; ++i) out.push_back(cut(range, parts, i).size());
    return out;
  }
  // The ranges that no parameter fills.
  std::vector<IndexRange> gaps() const {
    std::vector<IndexRange> out;
    for (size_t i = 0; i < members_.size(); ++i) {
      const IndexRange gap{members_[i].offset + members_[i].numel(),
                           i + 1 < members_.size() ? members_[i + 1].offset : total_};
      if (!gap.empty()) out.push_back(gap);
    }
    return out;
  }
  IndexRange all() const { return {0, total_}; }
  IndexRange slice(int rank, int size) const { return cut(all(), size, rank); }
  std::vector<Overlap> overlaps(IndexRange flat) const {
    std::vector<Overlap> out;
    for (size_t i = 0; i < members_.size(); ++i) {
      const Member& p = members_[i];
      const IndexRange r = intersect(flat, {p.offset, p.offset + p.numel()});
      if (r.empty()) continue;
      const IndexRange e{r.begin - p.offset, r.end - p.offset};
      out.push_back({static_cast<int>(i), e, {e.begin / kUnit, ceil_div(e.end, kUnit)}});
    }
    return out;
  }

 private:
  std::vector<Member> members_;
  int64_t total_ = 0;
};

}  // namespace lockstep
