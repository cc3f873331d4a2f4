// Options of data-parallel training, and the ladder of shard levels.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/field.h"

namespace lockstep {

// What is split across the ranks of a shard group; each level includes those before it (ZeRO 1, 2, 3; Rajbhandari et
// al. 2020).
enum class ShardLevel {
  kNone,        // every rank holds everything
  kOptimizer,   // a rank updates its slice: masters and moments; parameters come together once a step
  kGradients,   // gradients leave as soon as a micro-batch has made them
  kParameters,  // parameters come together where they are used, and go again
};

inline constexpr ShardLevel kShardLevels[] = {ShardLevel::kNone, ShardLevel::kOptimizer, ShardLevel::kGradients,
                                              ShardLevel::kParameters};
// A level's word in a configuration.
constexpr std::string_view to_text(ShardLevel level) {
  constexpr std::string_view kWords[] = {"none", "optimizer", "gradients", "parameters"};
  return kWords[static_cast<size_t>(level)];
}

enum class ReduceMode {
  kExact,  // one order of summation at every world size: equal bits
  kFast,   // the communication library's own reduction
};

enum class Reshard { kAuto, kYes, kNo };

// How frozen parameters are kept: in fp32 as masters, in the type of the files that they come from, or, of weights of
// linear layers, in codes (core/kernels/codes/weight_codes.h).
enum class FrozenAs : uint8_t { kMasters, kStored, kNf4, kInt8 };

struct DataParallelOptions {
  ReduceMode reduce = ReduceMode::kExact;
  double bucket_mb = 4;  // buckets are at least this large
  ShardLevel level = ShardLevel::kNone;
  int64_t group = 0;  // ranks that share one copy of the state; 0: all. Others hold replicas
  Reshard reshard_after_forward = Reshard::kAuto;
  double gathered_limit_mb = 0;  // of parameters that are whole at a time at kParameters; 0: no limit
  std::string gathered_limit_place =
      "sharding.gathered_limit";                             // what its refusal calls it, perhaps with file and line
  bool offload_optimizer = false;                            // masters and moments in host memory
  DType compute = DType::kFloat32;                           // of parameters as the model reads them, and on the wire
  DType reduce_dtype = DType::kFloat32;                      // of each micro-batch's gradient, once it is formed
  uint64_t seed = 1;                                         // of initial values
  std::function<bool(const std::string& name)> frozen = {};  // parameters that take no gradient; none where empty
  // Frozen parameters come from files that stay: they have no fp32 masters, and DataParallel::base_state() has them,
  // not state().
  bool frozen_of_files = false;
  DType file_type = DType::kFloat32;  // of those; what is kept has this type or the compute type
  FrozenAs frozen_as = FrozenAs::kMasters;
  std::function<bool(const std::string& name)> coded = {};  // which of them are in codes; none where empty
  bool has_codes() const { return frozen_as >= FrozenAs::kNf4; }
  DType coding() const { return frozen_as == FrozenAs::kNf4 ? DType::kNf4 : DType::kInt8; }  // where has_codes()
  std::vector<std::string> apart = {};  // children of the root that share no bucket with other children
};
std::vector<Field> fields(DataParallelOptions& o);

// Do whole copies of the parameters come and go during a pass? `shards`: ranks of a shard group.
inline bool streams_parameters(const DataParallelOptions& o, int shards) {
  return o.level >= ShardLevel::kParameters && shards > 1;
}

}  // namespace lockstep
