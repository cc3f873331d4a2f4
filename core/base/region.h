// Region: a box of a tensor, at its place in the tensor's logical shape. What a rank holds of a tensor is a range of a
// region's elements, counted in row-major order: of the whole tensor where ranks cut flat buffers, of a box such as
// [:, a:b] where a layer holds a part of a matrix, and of a box's range where both meet. A range that is cut stays a
// range; as boxes it would be up to 2 rank - 1 of them. The tensor's name stands beside the region, since a parameter
// and its moments share one. A plain value: pure arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/base/partition.h"
#include "core/base/shape.h"

namespace lockstep {

struct Region {
  Shape shape;          // of the whole tensor
  Shape begin, extent;  // the box: of dimension i [begin[i], begin[i] + extent[i])

  Region() = default;  // of a scalar
  Region(const Shape& whole);
  // Throws ExitCode::kInternal where the box is not within the shape.
  Region(const Shape& shape, const Shape& begin, const Shape& extent);

  int64_t numel() const { return extent.numel(); }  // of the box
  bool is_whole() const { return extent == shape; }
  // Elements of the box that follow each other in the tensor too, at least: its elements are runs of that length.
  int64_t run() const;
  bool is_contiguous() const { return numel() == run(); }
  // Of the element at `at` of the box, the index in the flattened tensor; and back, of an element of the box.
  int64_t element(int64_t at) const;
  int64_t index_of(int64_t element) const;
  // Does every run begin and end at multiples of `unit` elements of the tensor, or at its end?
  bool is_aligned(int64_t unit) const;

  friend bool operator==(const Region&, const Region&) = default;
};

// Is it a box of the shape? Of any numbers.
bool is_box_of(const Shape& shape, const Shape& begin, const Shape& extent);

// The box of both; without an element where there is none. Of regions of one shape.
Region intersect(const Region& a, const Region& b);

std::string to_text(const Region& region);  // "[0:64, 33:67]"

// Calls visit(at, element, n) for the runs of elements [range) of a region, in order: n elements, the first at `at` of
// the region and `element` of the flattened tensor.
template <class Visit>
void for_each_run(const Region& region, IndexRange range, const Visit& visit) {
  const int64_t run = region.run();
  for (int64_t at = range.begin; at < range.end;) {
    const int64_t n = std::min((at / run + 1) * run, range.end) - at;
    visit(at, region.element(at), n);
    at += n;
  }
}

// Calls visit(at_a, at_b, n) for the runs that elements [of_a) of `a` and [of_b) of `b` share, regions of one shape, in
// order; both places ascend.
template <class Visit>
void for_each_common_run(const Region& a, IndexRange of_a, const Region& b, IndexRange of_b, const Visit& visit) {
  const Region both = intersect(a, b);
  if (both.numel() == 0 || of_a.empty() || of_b.empty()) return;
  const int64_t run = both.run(), runs = both.numel() / run;
  const auto place_in = [&](const Region& r, int64_t k) { return r.index_of(both.element(k * run)); };
  // The first run that ends after both ranges begin.
  IndexRange left{0, runs};
  while (!left.empty()) {
    const int64_t middle = left.begin + left.size() / 2;
    if (place_in(a, middle) + run > of_a.begin && place_in(b, middle) + run > of_b.begin) left.end = middle;
    else left.begin = middle + 1;
  }
  for (int64_t k = left.begin; k < runs; ++k) {
    const int64_t at_a = place_in(a, k), at_b = place_in(b, k);
    if (at_a >= of_a.end || at_b >= of_b.end) return;
    const int64_t from = std::max({int64_t{0}, of_a.begin - at_a, of_b.begin - at_b}),
                  to = std::min({run, of_a.end - at_a, of_b.end - at_b});
    if (from < to) visit(at_a + from, at_b + from, to - from);
  }
}

}  // namespace lockstep
