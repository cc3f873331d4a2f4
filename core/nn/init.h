// Initial values: each element is a function of (seed, parameter name, element), so that any rank can fill any range.
// Plain functions and values.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/region.h"

namespace lockstep {

struct Init {
  enum class Kind { kConstant, kNormal, kUniform };
  Kind kind = Kind::kConstant;
  double scale = 0;  // the constant, the standard deviation, or the bound of [-scale, scale)

  static Init constant(double value) { return {Kind::kConstant, value}; }
  static Init zeros() { return constant(0); }
  static Init ones() { return constant(1); }
  static Init normal(double standard_deviation) { return {Kind::kNormal, standard_deviation}; }
  static Init uniform(double bound) { return {Kind::kUniform, bound}; }
};

// out[i - begin] = element i, for i in [begin, end); on the current stream.
void fill_initial(const Init& init, uint64_t seed, std::string_view name, int64_t begin, int64_t end, float* out);
// The same of elements [range) of a region of the parameter: the values that the whole parameter has there.
void fill_initial(const Init& init, uint64_t seed, std::string_view name, const Region& region, IndexRange range,
                  float* out);

}  // namespace lockstep
