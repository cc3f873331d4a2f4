// Dropout of attention's probabilities: for each the factor 0 or 1 / (1 - p), drawn by Philox from seed, step, site and
// the sample's global index, at the position (head, query, key). Plain functions, compiled once per instruction-set
// level.
#pragma once

#include "core/base/philox.h"
#include "core/kernels/args.h"
#include "core/kernels/math.h"

namespace lockstep::inline LOCKSTEP_ISA {

// The factors of one query of one head.
struct DropFactors {
  // `item`: of [batch, heads].
  HD DropFactors(const AttentionArgs& a, int64_t item, int64_t query)
      : key(mix(a.seed, a.step)),
        high(mix(a.site, static_cast<uint64_t>(a.samples[item / a.heads]))),
        first(static_cast<uint64_t>((item % a.heads * a.time + query) * ((a.key_time() + 3) / 4))),
        p(static_cast<float>(a.drop_probability)),
        kept(1 / (1 - a.drop_probability)) {}
  HD Philox4 four(int64_t group) const { return philox(key, first + static_cast<uint64_t>(group), high); }
  HD double of(uint32_t bits) const { return uniform_of(bits) < p ? 0 : kept; }
  HD double operator()(int64_t position) const { return of(four(position / 4).v[position % 4]); }

  uint64_t key, high, first;
  float p;
  double kept;
};

}  // namespace lockstep::inline LOCKSTEP_ISA
