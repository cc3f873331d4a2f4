// Layouts and partitions: every element has one place and one owner.
#include "sharding/bucket_layout.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::bucket_layout_test {
namespace {

BucketLayout some_layout() {
  BucketLayout l;
  for (const Shape& s : {Shape{5, 7}, Shape{1}, Shape{}, Shape{64}, Shape{65}, Shape{300, 3}, Shape{0}, Shape{63}})
    l.add(str("p", l.members().size()), s);
  return l;
}

TEST(BucketLayout, MembersAreAlignedAndApart) {
  const BucketLayout l = some_layout();
  int64_t at = 0;
  for (const BucketLayout::Member& p : l.members()) {
    EXPECT_EQ(p.offset % BucketLayout::kUnit, 0);
    EXPECT_GE(p.offset, at);
    EXPECT_LT(p.offset - at, BucketLayout::kUnit) << "no more room than alignment needs";
    at = p.offset + p.numel();
  }
  EXPECT_EQ(l.total() % BucketLayout::kUnit, 0);
  EXPECT_GE(l.total(), at);
}

TEST(BucketLayout, SlicesTileTheBufferAtAnyNumberOfRanks) {
  const BucketLayout l = some_layout();
  for (int size = 1; size <= 40; ++size) {
    int64_t at = 0, most = 0, least = l.total();
    for (int r = 0; r < size; ++r) {
      const IndexRange s = l.slice(r, size);
      EXPECT_EQ(s.begin, at);
      EXPECT_EQ(s.begin % BucketLayout::kUnit, 0);
      EXPECT_EQ(BucketLayout::cut_sizes(l.all(), size)[static_cast<size_t>(r)], s.size());
      at = s.end;
      most = std::max(most, s.size()), least = std::min(least, s.size());
    }
    EXPECT_EQ(at, l.total());
    EXPECT_LE(most - least, BucketLayout::kUnit) << "even but for one unit";
  }
}

TEST(BucketLayout, EvenedOutEveryRankHasAsMuchUnlessThatTakesTooMuchMemory) {
  for (int size = 1; size <= 40; ++size) {
    BucketLayout l = some_layout();
    const int64_t before = l.total(), last = l.members().back().offset + l.members().back().numel();
    l.even_out(size);
    const auto sizes = BucketLayout::cut_sizes(l.all(), size);
    const bool even = sizes.front() == sizes.back();
    const int64_t wanted = round_up(before, size * BucketLayout::kUnit);
    EXPECT_EQ(even, wanted - before <= before / 16) << size;
    EXPECT_EQ(l.total(), even ? wanted : before) << size;
    int64_t filled = 0, empty = 0;
    for (const BucketLayout::Member& p : l.members()) filled += p.numel();
    for (const IndexRange& gap : l.gaps()) empty += gap.size();
    EXPECT_EQ(filled + empty, l.total()) << size;
    EXPECT_EQ(l.gaps().back(), (IndexRange{last, l.total()})) << size;
  }
}

TEST(BucketLayout, OverlapsGiveEveryElementAndChunkOneOwner) {
  const BucketLayout l = some_layout();
  for (int size = 1; size <= 40; ++size) {
    std::vector<std::vector<int>> elements, chunks;
    for (const BucketLayout::Member& p : l.members()) {
      elements.emplace_back(static_cast<size_t>(p.numel()), 0);
      chunks.emplace_back(static_cast<size_t>(p.chunks()), 0);
    }
    for (int r = 0; r < size; ++r)
      for (const BucketLayout::Overlap& o : l.overlaps(l.slice(r, size))) {
        for (int64_t i = o.elements.begin; i < o.elements.end; ++i)
          ++elements[static_cast<size_t>(o.member)][static_cast<size_t>(i)];
        for (int64_t c = o.chunks.begin; c < o.chunks.end; ++c)
          ++chunks[static_cast<size_t>(o.member)][static_cast<size_t>(c)];
      }
    for (auto* all : {&elements, &chunks})
      for (auto& member : *all)
        for (int owners : member) ASSERT_EQ(owners, 1) << size << " ranks";
  }
}

TEST(MicroBatches, AreDealtOnceEachOnEverySchedule) {
  for (MicroSchedule schedule : {MicroSchedule::kLocal, MicroSchedule::kWaves})
    for (int64_t count = 1; count <= 12; ++count)
      for (int size = 1; size <= 6; ++size) {
        std::vector<int64_t> all;
        for (int r = 0; r < size; ++r) {
          const auto mine = micro_batches_of(schedule, count, r, size);
          EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
          EXPECT_LE(static_cast<int64_t>(mine.size()), ceil_div(count, size));
          all.insert(all.end(), mine.begin(), mine.end());
        }
        std::sort(all.begin(), all.end());
        ASSERT_EQ(static_cast<int64_t>(all.size()), count);
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], i);
      }
}

}  // namespace
}  // namespace lockstep::bucket_layout_test
