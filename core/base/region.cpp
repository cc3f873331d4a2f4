#include "core/base/region.h"

namespace lockstep {

bool is_box_of(const Shape& shape, const Shape& begin, const Shape& extent) {
  if (begin.rank() != shape.rank() || extent.rank() != shape.rank()) return false;
  for (int i = 0; i < shape.rank(); ++i)
    if (begin[i] < 0 || extent[i] < 0 || begin[i] > shape[i] || extent[i] > shape[i] - begin[i]) return false;
  return true;
}

Region::Region(const Shape& whole) : shape(whole), begin(whole), extent(whole) {
  for (int64_t& at : begin) at = 0;
}

Region::Region(const Shape& of, const Shape& from, const Shape& size) : shape(of), begin(from), extent(size) {
  check(is_box_of(of, from, size), "a region from ", from, " of extent ", size, " is not within the shape ", of);
}

int64_t Region::run() const {
  int64_t n = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    n *= extent[i];
    if (extent[i] != shape[i]) break;
  }
  return n;
}

int64_t Region::element(int64_t at) const {
  if (is_whole()) return at;
  int64_t out = 0, stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    out += (begin[i] + at % extent[i]) * stride;
    at /= extent[i];
    stride *= shape[i];
  }
  return out;
}

int64_t Region::index_of(int64_t element) const {
  if (is_whole()) return element;
  int64_t out = 0, stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    out += (element % shape[i] - begin[i]) * stride;
    element /= shape[i];
    stride *= extent[i];
  }
  return out;
}

bool Region::is_aligned(int64_t unit) const {
  if (is_whole() || numel() == 0) return true;
  const int64_t length = run(), end = element(0) + length;
  if (is_contiguous()) return element(0) % unit == 0 && (end % unit == 0 || end == shape.numel());
  const Shape strides = contiguous_strides(shape);
  for (int i = 0; i < shape.rank(); ++i)
    if (extent[i] > 1 && strides[i] >= length && strides[i] % unit != 0) return false;
  return element(0) % unit == 0 && length % unit == 0;
}

Region intersect(const Region& a, const Region& b) {
  Region out = a;
  for (int i = 0; i < a.shape.rank(); ++i) {
    const IndexRange r =
        intersect(IndexRange{a.begin[i], a.begin[i] + a.extent[i]}, IndexRange{b.begin[i], b.begin[i] + b.extent[i]});
    out.begin[i] = std::min(r.begin, a.shape[i]);
    out.extent[i] = std::max<int64_t>(r.size(), 0);
  }
  return out;
}

std::string to_text(const Region& r) {
  std::string out = "[";
  for (int i = 0; i < r.shape.rank(); ++i)
    out += (i ? ", " : "") + std::to_string(r.begin[i]) + ":" + std::to_string(r.begin[i] + r.extent[i]);
  return out + "]";
}

}  // namespace lockstep
