// Shape: up to 8 extents, held inline. Also used for strides, counted in elements.
// A plain value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace lockstep {

class Shape {
 public:
  static constexpr int kMaxRank = 8;
  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) {
    for (int64_t e : extents) push_back(e);
  }
  explicit Shape(const std::vector<int64_t>& extents) {
    for (int64_t e : extents) push_back(e);
  }
  void push_back(int64_t extent) {
    check(rank_ < kMaxRank, "a shape has at most ", kMaxRank, " dimensions");
    extents_[rank_++] = extent;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return extents_[i]; }
  int64_t& operator[](int i) { return extents_[i]; }
  const int64_t* begin() const { return extents_; }
  const int64_t* end() const { return extents_ + rank_; }
  int64_t* begin() { return extents_; }
  int64_t* end() { return extents_ + rank_; }
  int64_t back() const { return extents_[rank_ - 1]; }
  // Product of the extents; 1 for a scalar.
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t e : *this) n *= e;
    return n;
  }
  friend bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  int64_t extents_[kMaxRank] = {};
  int rank_ = 0;
};

inline std::string to_text(const Shape& s) {
  std::string out = "[";
  for (int i = 0; i < s.rank(); ++i) out += (i ? ", " : "") + std::to_string(s[i]);
  return out + "]";
}

// Row-major strides of a shape, in elements.
inline Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

}  // namespace lockstep
