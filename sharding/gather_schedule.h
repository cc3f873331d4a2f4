// GatherSchedule: when parameters come together. Below level parameters all do, in the order of use, when a step or an
// evaluation begins after the optimizer has changed them, and a block waits for its own. At level parameters they come
// and go: each pass of a micro-batch goes through the blocks in one fixed order, so that all ranks gather alike; the
// next block's parameters travel while the present one computes, and those behind are freed. Parameters of no block
// (the root's) stay until the optimizer changes them. Owned by DataParallel; borrows the buckets, the log and the
// reduce schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "sharding/parameter_bucket.h"
#include "sharding/reduce_schedule.h"

namespace lockstep {

class GatherSchedule {
 public:
  enum class Pass : int64_t { kNone, kForward, kBackward, kEnd };
  using Block = std::vector<ParameterBucket*>;

  // `reductions` is told, at level parameters, when the last backward pass of a round has left a block; where this rank
  // only follows, when any has. Throws ExitCode::kConfig where the limit is below what one block needs.
  GatherSchedule(const Mesh& mesh, const DataParallelOptions& options, Block root, std::vector<Block> blocks,
                 TransferLog& log, ReduceSchedule& reductions);

  bool streams() const { return streams_; }
  // A step or an evaluation begins.
  void begin();
  // A round begins: `announce` where some ranks of this shard group have no data in it, and follow.
  void begin_round(bool announce);
  // The pass reaches the root, or a block.
  void enter_root();
  void enter(size_t block, Pass pass);
  // All ranks with data make as many backward passes as forward ones, whatever their micro-batches used; none where the
  // round did not train. (How many forward passes there are must not depend on the data.)
  void end_round(bool trained);
  // Takes part in a round without data of its own.
  void follow_round();
  // Nothing is under way any more: masters may be written.
  void settle();
  // Marks whole copies as out of date: of all parameters that are not frozen, which the optimizer's update, the next in
  // the stream, will change, or of all, which others have changed.
  enum class By { kUpdate, kOthers };
  void invalidate(By by);

 private:
  void start(Pass pass);
  void finish_pass(bool completed);
  void go_to(int64_t block, bool completed = true);
  int64_t next_of(int64_t block) const;
  void begin_gather(const Block& block);
  void wait(const Block& block);
  int64_t gathered_bytes() const;
  Pass tell(Pass pass);

  const Mesh& mesh_;
  Block root_;
  std::vector<Block> blocks_;  // in the order of use
  bool streams_, has_phases_, reshard_;
  double limit_;  // bytes
  bool announce_ = false, following_ = false;
  Pass pass_ = Pass::kNone;
  int64_t at_ = -1;                   // the block that computes, or did last
  int forwards_ = 0, backwards_ = 0;  // passes of this round
  TransferLog& log_;
  ReduceSchedule& reductions_;
};

}  // namespace lockstep
