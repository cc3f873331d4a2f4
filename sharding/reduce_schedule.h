// ReduceSchedule: when gradients are reduced. A step has one round of exchanges at the lower levels, and one for each
// wave of micro-batches (one a rank) from level gradients on. In a round exchanges of buckets start in one fixed order
// on every rank, each as soon as its gradients are complete, while backward goes on. Owned by DataParallel; owns the
// gradient buckets and the streams on which sums are merged.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "core/device/context.h"
#include "sharding/gradient_bucket.h"
#include "sharding/transfer_log.h"

namespace lockstep {

class ReduceSchedule {
 public:
  ReduceSchedule(const Mesh& mesh, const DataParallelOptions& options, TransferLog& log);

  // A bucket of gradients for these parameters; exchanges of buckets start in the order of these calls.
  void add(const ParameterBucket& parameters);
  // Which of them, by index, belong to each block of the gather schedule.
  void set_blocks(std::vector<std::vector<size_t>> buckets_of_block) { of_block_ = std::move(buckets_of_block); }
  const std::vector<std::unique_ptr<GradientBucket>>& buckets() const { return buckets_; }

  // How micro-batches are dealt to ranks at this level, and those of this rank in the step that begin_step() began.
  MicroSchedule micro_schedule() const { return micro_schedule_; }
  std::vector<int64_t> my_micro_batches() const;

  void begin_step(int64_t micro_count);
  // Is a round of this step left? Its micro-batches, and whether this rank's shard group has none of them, or some of
  // its ranks have and others have not.
  bool has_round() const { return round_ < rounds_.size(); }
  bool shard_group_has_data() const;
  bool shard_group_is_split() const;

  // This rank's micro-batches, in the order of my_micro_batches(). The end of one returns true where it ends the round.
  void begin_micro_batch(int64_t index);
  bool end_micro_batch();
  // A round in which this rank has no micro-batch: it takes part in the exchanges all the same.
  void begin_following();
  void end_following();
  // Throws where this rank has not run all of its micro-batches.
  void check_all_done() const;
  // All rounds are over: completes the exchanges. The current stream then waits for the merged sums.
  void finish();

  // Gradients of this step's micro-batch `index`, of this rank, go to `sink`, too. After begin_step().
  void watch(int64_t index, const GradientSink& sink);
  void set_sum_observer(const std::function<void(const Tensor& sum)>& observer);  // GradientBucket's
  // Between steps, around forward and backward of any one micro-batch: nothing is exchanged or added up.
  void begin_apart(const GradientSink& sink);
  void end_apart();

  // Told by the gather schedule, at level parameters: the round's last backward pass has left the block (where this
  // rank follows, any backward pass): what it did not use gets no gradient any more.
  void block_left(size_t block);
  // Told by the gather schedule, at level parameters: each micro-batch goes through the blocks once in each direction.
  void blocks_pass_once(bool once) { blocks_pass_once_ = once; }
  // Told by the buckets: a leaf is about to take memory; all gradients of a micro-batch are in.
  void leaf_needs_memory();
  void bucket_complete(size_t index);

  bool idle() const { return in_flight_.empty(); }
  // Number of parameters that got no gradient in this rank's last micro-batch.
  int unused() const { return unused_; }

 private:
  struct Reduction {
    size_t bucket, transfer;
  };

  const ReduceRound& round() const { return rounds_[round_]; }
  bool round_continues() const;  // this rank has more micro-batches in it, after the one that began last
  void begin_round();
  void start(size_t bucket);
  void start_through(size_t bucket);
  Stream& merging_of(size_t bucket) const {
    return merging_.empty() ? current_stream() : *merging_[bucket % merging_.size()];
  }
  bool waits_in_order() const;
  void free_oldest();
  bool finish_oldest(std::optional<Seconds> patience = {});

  const Mesh& mesh_;
  const DataParallelOptions& options_;
  TransferLog& log_;
  MicroSchedule micro_schedule_;
  // Where what arrives is added up, beside backward, of the buckets in turn; empty for one rank.
  std::vector<std::unique_ptr<Stream>> merging_;
  std::vector<std::unique_ptr<GradientBucket>> buckets_;
  std::vector<std::vector<size_t>> of_block_;

  int64_t micro_count_ = 0, done_ = 0;  // of the step: micro-batches of all ranks; of this rank that began
  std::vector<ReduceRound> rounds_;
  size_t round_ = 0;
  std::vector<bool> complete_;  // by bucket, in this round
  size_t next_start_ = 0;
  bool following_ = false, blocks_pass_once_ = false;
  std::deque<Reduction> in_flight_;
  int unused_ = 0;
};

}  // namespace lockstep
