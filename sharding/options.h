// Options of data-parallel training, and the ladder of shard levels.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/field.h"

namespace lockstep {

// What is split across ranks; each level includes those before it. This version runs kNone.
enum class ShardLevel { kNone, kOptimizer, kGradients, kParameters };

enum class ReduceMode {
  kExact,  // one order of summation at every world size: equal bits
  kFast,   // the communication library's own reduction
};

struct DataParallelOptions {
  ReduceMode reduce = ReduceMode::kExact;
  double bucket_mb = 4;                                      // gradients travel in groups of at least this size
  uint64_t seed = 1;                                         // of initial values
  std::function<bool(const std::string& name)> frozen = {};  // parameters that take no gradient; none where empty
};
std::vector<Field> fields(DataParallelOptions& o);

}  // namespace lockstep
