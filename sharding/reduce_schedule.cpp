#include "sharding/reduce_schedule.h"

#include <algorithm>

#include "core/base/trace.h"

namespace lockstep {
namespace {

// Exchanges under way at a time where gradients leave at once: the bound on their memory.
constexpr size_t kInFlight = 2;
// Streams on which sums are merged, where machines exchange in stages or GPUs give back what they used: so that links
// carry one bucket while another is added up or waits for a late rank.
constexpr int kBesideEachOther = 2;
// Where another rank's micro-batch does not use a block, that rank's part may come only when its backward ends, which
// may wait for this rank: after this time more memory is taken instead.
constexpr Seconds kPatience{1};

}  // namespace

ReduceSchedule::ReduceSchedule(const Mesh& mesh, const DataParallelOptions& options, TransferLog& log)
    : mesh_(mesh),
      options_(options),
      log_(log),
      micro_schedule_(options.level >= ShardLevel::kGradients ? MicroSchedule::kWaves : MicroSchedule::kLocal) {
  // With NCCL the GPU's queue waits for the exchange. Exchanges through host memory need a thread that waits for them;
  // where they go through several stages, one for each bucket that is on its way.
  if (const Axis& data = mesh.data(); data.size > 1) {
    const bool nccl = data.comm().backend() == "nccl";
    for (int i = 0; i < (nccl || mesh.machines().machines > 1 ? kBesideEachOther : 1); ++i)
      merging_.push_back(
          std::make_unique<Stream>(current_device(), nccl ? Stream::Mode::kQueue : Stream::Mode::kThread));
  }
}

void ReduceSchedule::add(const ParameterBucket& parameters) {
  buckets_.push_back(std::make_unique<GradientBucket>(parameters, mesh_, options_, *this, buckets_.size()));
}

std::vector<int64_t> ReduceSchedule::my_micro_batches() const {
  return micro_batches_of(micro_schedule_, micro_count_, mesh_.data().index, mesh_.data().size);
}

void ReduceSchedule::begin_step(int64_t micro_count) {
  micro_count_ = micro_count;
  const int size = mesh_.data().size;
  const bool waves = micro_schedule_ == MicroSchedule::kWaves;
  rounds_.assign(waves ? static_cast<size_t>(ceil_div(micro_count, size)) : 1, {});
  for (size_t i = 0; i < rounds_.size(); ++i)
    for (int r = 0; r < size; ++r) {
      const int64_t first = std::min(micro_count, static_cast<int64_t>(i) * size + r);
      rounds_[i].ranges.push_back(waves ? IndexRange{first, std::min(micro_count, first + 1)}
                                        : split_evenly(micro_count, size, r));
    }
  rounds_.back().last = true;
  round_ = 0;
  done_ = 0;
  unused_ = 0;
  for (auto& b : buckets_) b->begin_step(micro_count);
  begin_round();
}

void ReduceSchedule::begin_round() {
  complete_.assign(buckets_.size(), false);
  next_start_ = 0;
}

bool ReduceSchedule::shard_group_has_data() const {
  return !round().ranges[static_cast<size_t>(mesh_.rank_of(mesh_.replica().index, 0))].empty();
}

bool ReduceSchedule::shard_group_is_split() const {
  const int last = mesh_.rank_of(mesh_.replica().index, mesh_.shard().size - 1);
  return shard_group_has_data() && round().ranges[static_cast<size_t>(last)].empty();
}

bool ReduceSchedule::round_continues() const {
  return rounds_.size() == 1 && done_ < round().ranges[static_cast<size_t>(mesh_.data().index)].size();
}

void ReduceSchedule::begin_micro_batch(int64_t index) {
  const std::vector<int64_t> mine = my_micro_batches();
  check(done_ < static_cast<int64_t>(mine.size()) && index == mine[static_cast<size_t>(done_)],
        "backward of micro-batch ", index, ": this rank has done ", done_, " of its ",
        static_cast<int64_t>(mine.size()), ", which it runs in the order of my_micro_batches()");
  for (auto& b : buckets_) b->begin_micro_batch(index);
  ++done_;
  unused_ = 0;
}

bool ReduceSchedule::end_micro_batch() {
  for (auto& b : buckets_) unused_ += b->end_micro_batch();
  if (round_continues()) return false;
  ++round_;
  begin_round();
  return true;
}

void ReduceSchedule::watch(int64_t index, const GradientSink& sink) {
  for (auto& b : buckets_) b->watch(index, sink);
}

void ReduceSchedule::set_sum_observer(const std::function<void(const Tensor& sum)>& observer) {
  for (auto& b : buckets_) b->set_sum_observer(observer);
}

void ReduceSchedule::begin_apart(const GradientSink& sink) {
  for (auto& b : buckets_) b->begin_apart(sink);
}

void ReduceSchedule::end_apart() {
  for (auto& b : buckets_) b->end_apart();
}

void ReduceSchedule::bucket_complete(size_t index) {
  trace_mark();
  if (round_continues()) return;
  complete_[index] = true;
  // In fixed order on every rank, so that collectives always match.
  while (next_start_ < buckets_.size() && complete_[next_start_]) start(next_start_++);
}

void ReduceSchedule::start(size_t bucket) {
  GradientBucket& b = *buckets_[bucket];
  const ParameterBucket& p = b.parameters();
  in_flight_.push_back({bucket, log_.started(Transfer::Kind::kReduce, p.name(), p.layout().total() * 4)});
  const size_t beside = std::max<size_t>(1, merging_.size());
  if (bucket >= beside) buckets_[bucket - beside]->give_back(merging_of(bucket));
  b.reduce(round(), merging_of(bucket));
}

// Whether a GPU's queue waits for exchanges, and the host for none. A rank that has left a block has started the
// block's exchange, for which it needs no parameters of blocks behind. So where parameters are gathered block by block,
// a queue that waits for an exchange holds up no gather that this exchange depends on; but only if no rank passes a
// block again, in which case a rank that did not use the block starts the exchange after its last pass.
bool ReduceSchedule::waits_in_order() const {
  return merging_of(0).mode() == Stream::Mode::kQueue &&
         (blocks_pass_once_ || !streams_parameters(options_, mesh_.shard().size));
}

void ReduceSchedule::leaf_needs_memory() {
  const bool streams = streams_parameters(options_, mesh_.shard().size);
  while (in_flight_.size() >= kInFlight)
    if (waits_in_order()) free_oldest();
    else if (!finish_oldest(streams ? std::optional(kPatience) : std::nullopt)) return;
}

void ReduceSchedule::free_oldest() {
  const Reduction r = in_flight_.front();
  in_flight_.pop_front();
  buckets_[r.bucket]->free_in_order(merging_of(r.bucket));
  log_.ready(r.transfer, log_.since_begin());
}

void ReduceSchedule::block_left(size_t block) {
  for (size_t bucket : of_block_[block])
    if (following_) start_through(bucket);
    else unused_ += buckets_[bucket]->end_micro_batch();
}

// Without data: the buckets up to this one, as long as memory for what arrives is there.
void ReduceSchedule::start_through(size_t bucket) {
  for (; next_start_ <= bucket; ++next_start_) {
    if (micro_schedule_ == MicroSchedule::kWaves) leaf_needs_memory();
    start(next_start_);
  }
}

void ReduceSchedule::check_all_done() const {
  const auto mine = static_cast<int64_t>(my_micro_batches().size());
  check(done_ == mine, "end_step after ", done_, " of this rank's ", mine, " micro-batches");
}

void ReduceSchedule::begin_following() {
  following_ = true;
  next_start_ = 0;
}

void ReduceSchedule::end_following() {
  start_through(buckets_.size() - 1);
  following_ = false;
  ++round_;
}

bool ReduceSchedule::finish_oldest(std::optional<Seconds> patience) {
  const Reduction r = in_flight_.front();
  const double needed = log_.since_begin();
  if (!buckets_[r.bucket]->finish_reduce(patience)) return false;
  buckets_[r.bucket]->give_back(merging_of(r.bucket));
  in_flight_.pop_front();
  log_.ready(r.transfer, needed);
  return true;
}

// A GPU's queue waits for the exchanges, not the host, and memory is given back in its order: by now this rank has
// enqueued all that another may wait for. On CPUs what the exchanges use stays until the next step begins where leaves
// stay; from level gradients on memory is given back as they end.
void ReduceSchedule::finish() {
  while (!in_flight_.empty())
    if (merging_of(0).mode() == Stream::Mode::kQueue) free_oldest();
    else finish_oldest();
  for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i]->give_back(merging_of(i));
  // A stream that no bucket has used is no part of a graph that is being recorded.
  for (size_t i = 0; i < std::min(merging_.size(), buckets_.size()); ++i) current_stream().wait(merging_[i]->record());
  for (auto& b : buckets_) b->wait_gathered();
}

}  // namespace lockstep
