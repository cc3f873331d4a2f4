// Regions: their order and runs against a plain walk over all elements; initial values of a region are those of the
// whole parameter there.
#include "core/base/region.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "core/base/state_chunk.h"
#include "core/device/context.h"
#include "core/nn/init.h"
#include "tests/support/files.h"

namespace lockstep::region_test {
namespace {

// The elements of a box in row-major order, as indices in the flattened tensor.
std::vector<int64_t> elements_of(const Region& r) {
  std::vector<int64_t> out;
  const std::function<void(int, int64_t)> walk = [&](int dim, int64_t index) {
    if (dim == r.shape.rank()) return out.push_back(index);
    for (int64_t i = 0; i < r.extent[dim]; ++i) walk(dim + 1, index * r.shape[dim] + r.begin[dim] + i);
  };
  walk(0, 0);
  return out;
}

// Every box of a shape.
std::vector<Region> boxes_of(const Shape& shape) {
  std::vector<Region> out;
  const std::function<void(Shape, Shape)> choose = [&](Shape begin, Shape extent) {
    const int dim = begin.rank();
    if (dim == shape.rank()) return out.emplace_back(shape, begin, extent), void();
    for (int64_t from = 0; from <= shape[dim]; ++from)
      for (int64_t to = from; to <= shape[dim]; ++to) {
        Shape b = begin, e = extent;
        b.push_back(from);
        e.push_back(to - from);
        choose(b, e);
      }
  };
  choose({}, {});
  return out;
}

const Shape kShapes[] = {{}, {5}, {3, 4}, {4, 1, 3}, {2, 3, 2}};

TEST(Region, OrderAndRunsAreThoseOfAPlainWalk) {
  for (const Shape& shape : kShapes)
    for (const Region& r : boxes_of(shape)) {
      SCOPED_TRACE(to_text(r) + " of " + to_text(shape));
      const auto wanted = elements_of(r);
      const auto n = static_cast<int64_t>(wanted.size());
      ASSERT_EQ(r.numel(), n);
      bool contiguous = true;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t element = wanted[static_cast<size_t>(i)];
        ASSERT_EQ(r.element(i), element);
        ASSERT_EQ(r.index_of(element), i);
        contiguous = contiguous && element == wanted[0] + i;
      }
      if (n > 0) {
        EXPECT_EQ(r.is_contiguous(), contiguous);
      }
      for (int64_t begin = 0; begin <= n; ++begin)
        for (int64_t end = begin; end <= n; ++end) {
          std::vector<int64_t> seen;
          for_each_run(r, {begin, end}, [&](int64_t at, int64_t element, int64_t m) {
            ASSERT_GT(m, 0);
            ASSERT_EQ(at, begin + static_cast<int64_t>(seen.size()));
            for (int64_t i = 0; i < m; ++i) seen.push_back(element + i);
          });
          ASSERT_EQ(seen, std::vector<int64_t>(wanted.begin() + begin, wanted.begin() + end));
        }
    }
}

TEST(Region, CommonRunsAreThoseOfBothRanges) {
  for (const Shape& shape : {Shape{5}, Shape{3, 4}, Shape{2, 2, 3}}) {
    const auto boxes = boxes_of(shape);
    for (size_t i = 0; i < boxes.size(); i += 3)
      for (size_t k = i % 2; k < boxes.size(); k += 2) {
        const Region &a = boxes[i], &b = boxes[k];
        const auto in_a = elements_of(a), in_b = elements_of(b);
        for (const IndexRange of_a : {IndexRange{0, a.numel()}, IndexRange{a.numel() / 3, a.numel() - a.numel() / 4}})
          for (const IndexRange of_b :
               {IndexRange{0, b.numel()}, IndexRange{b.numel() / 4, b.numel() - b.numel() / 3}}) {
            std::vector<std::pair<int64_t, int64_t>> wanted, seen;
            for (int64_t at = of_a.begin; at < of_a.end; ++at)
              for (int64_t to = of_b.begin; to < of_b.end; ++to)
                if (in_a[static_cast<size_t>(at)] == in_b[static_cast<size_t>(to)]) wanted.emplace_back(at, to);
            for_each_common_run(a, of_a, b, of_b, [&](int64_t at, int64_t to, int64_t n) {
              for (int64_t m = 0; m < n; ++m) seen.emplace_back(at + m, to + m);
            });
            ASSERT_EQ(seen, wanted) << to_text(a) << " and " << to_text(b) << " of " << to_text(shape);
          }
      }
  }
}

TEST(Region, IsAlignedWhereItsRunsCutNoUnit) {
  for (const Shape& shape : {Shape{5, 8}, Shape{3, 6}, Shape{2, 3, 4}, Shape{13}})
    for (const Region& r : boxes_of(shape)) {
      bool aligned = true;
      for_each_run(r, {0, r.numel()}, [&](int64_t at, int64_t element, int64_t n) {
        const bool ends = (element + n) % 4 == 0 || element + n == shape.numel();
        const bool continues = at + n < r.numel() && r.element(at + n) == element + n;
        const bool begins = element % 4 == 0 || (at > 0 && r.element(at - 1) == element - 1);
        aligned = aligned && begins && (ends || continues);
      });
      if (r.is_aligned(4)) {
        EXPECT_TRUE(aligned) << to_text(r) << " of " << to_text(shape);
      }
      if (r.numel() > 0 && r.is_contiguous()) {
        EXPECT_EQ(r.is_aligned(4), aligned) << to_text(r) << " of " << to_text(shape);
      }
    }
  EXPECT_TRUE(Region({100, 256}, {0, 64}, {100, 128}).is_aligned(kStateChunk));
  EXPECT_FALSE(Region({100, 256}, {0, 64}, {100, 100}).is_aligned(kStateChunk));
  EXPECT_FALSE(Region({100, 100}, {0, 64}, {100, 36}).is_aligned(kStateChunk));
  EXPECT_TRUE(Region({100, 67}, {64, 0}, {36, 67}).is_aligned(kStateChunk)) << "to the tensor's end";
}

TEST(Region, OutsideItsShapeIsRefused) {
  test::expect_error(ExitCode::kInternal, {"[0, 3]", "[4, 5]", "[4, 7]"}, [] { Region({4, 7}, {0, 3}, {4, 5}); });
  test::expect_error(ExitCode::kInternal, {"[4, 7]"}, [] { Region({4, 7}, {0}, {4}); });
  EXPECT_FALSE(is_box_of({4}, {-1}, {2}));
  EXPECT_FALSE(is_box_of({4}, {1}, {INT64_MAX}));
}

TEST(Region, SaysWhatItIs) {
  EXPECT_EQ(to_text(Region({64, 67}, {0, 33}, {64, 34})), "[0:64, 33:67]");
  EXPECT_EQ(to_text(Region(Shape{})), "[]");
  EXPECT_TRUE(Region(Shape{4, 7}).is_whole());
  EXPECT_FALSE(Region({4, 7}, {0, 0}, {4, 6}).is_whole());
}

TEST(InitialValuesOfARegion, AreThoseOfTheWholeThere) {
  const std::vector<Region> regions = {{{100, 67}, {0, 20}, {100, 30}},
                                       {{100, 67}, {33, 0}, {40, 67}},
                                       {{100, 67}, {7, 66}, {90, 1}},
                                       {{100, 67}, {50, 3}, {1, 1}},
                                       {{9, 5, 300}, {2, 1, 0}, {6, 3, 300}},
                                       {{9, 5, 300}, {0, 4, 17}, {9, 1, 280}},
                                       {{3, 4, 5, 6}, {1, 1, 1, 2}, {2, 3, 2, 3}},
                                       {{2000}, {700}, {600}},
                                       Shape{100, 67}};
  for (const Init& init : {Init::normal(0.02), Init::uniform(0.5), Init::constant(3)})
    for (const Region& r : regions) {
      std::vector<float> whole(static_cast<size_t>(r.shape.numel()));
      fill_initial(init, 7, "blocks.0.down.weight", 0, r.shape.numel(), whole.data());
      for (const IndexRange range :
           {IndexRange{0, r.numel()}, IndexRange{r.numel() / 3, r.numel() - r.numel() / 5}, IndexRange{1, 1}}) {
        std::vector<float> out(static_cast<size_t>(std::max<int64_t>(range.size(), 0))), wanted;
        for (int64_t i = range.begin; i < range.end; ++i) wanted.push_back(whole[static_cast<size_t>(r.element(i))]);
        fill_initial(init, 7, "blocks.0.down.weight", r, range, out.data());
        ASSERT_EQ(out, wanted) << to_text(r) << " of " << to_text(r.shape) << ", elements from " << range.begin;
      }
    }
}

}  // namespace
}  // namespace lockstep::region_test
