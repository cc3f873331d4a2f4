#include "sharding/gradient_bucket.h"

#include <algorithm>

#include "core/autograd/node.h"
#include "core/base/trace.h"
#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"
#include "sharding/gradient_exchange.h"
#include "sharding/reduce_schedule.h"

namespace lockstep {
namespace {

bool holds(const std::vector<Tensor>& tensors, const Tensor& t) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const Tensor& o) { return o.storage() == t.storage(); });
}

}  // namespace

GradientBucket::GradientBucket(const ParameterBucket& parameters, const Mesh& mesh, const DataParallelOptions& o,
                               ReduceSchedule& schedule, size_t index)
    : parameters_(parameters),
      mesh_(mesh),
      schedule_(schedule),
      index_(index),
      keeps_leaves_(o.level < ShardLevel::kGradients),
      reduce_dtype_(o.reduce_dtype),
      mode_(o.reduce),
      in_place_(mode_ == ReduceMode::kExact && reads_in_place(mesh.first())),
      in_stages_(mode_ == ReduceMode::kExact && mesh.machines().machines > 1),
      gives_back_(mode_ == ReduceMode::kExact && mesh.data().size > 1 && mesh.data().comm().backend() == "nccl") {
  for (size_t i = 0; i < parameters.members().size(); ++i) {
    AutogradRecord& record = *parameters.members()[i].parameter->value.record();
    record.before_grad = [this] { allocate_leaf(); };
    record.on_grad = [this, i] { gradient_arrived(i); };
  }
  // The library reduces the first of a step's leaves, into which the others are added.
  if (mode_ == ReduceMode::kFast && keeps_leaves_ && mesh.data().size > 1) {
    WithMemoryUse gradients(MemoryUse::kGradients);
    WithMemoryFor named(parameters_.name());
    leaves_.push_back(mesh.first().comm().registered(layout().total(), DType::kFloat32));
    raw::fill(leaves_.back(), 0);  // as in take_leaf
  }
}

// The model may live on: its parameters must not call back.
GradientBucket::~GradientBucket() {
  for (const NamedParameter& p : parameters_.members())
    if (const auto& record = p.parameter->value.record()) record->before_grad = record->on_grad = nullptr;
}

std::string GradientBucket::collective_name() const { return str("gradients of ", parameters_.name()); }

// --- Gradients of this rank's micro-batches

Tensor GradientBucket::take_leaf() {
  WithMemoryUse use(MemoryUse::kGradients);
  WithMemoryFor named(parameters_.name());
  if (!keeps_leaves_) return Tensor::unallocated({layout().total()});
  if (spare_.empty()) {
    spare_.push_back(Tensor::zeros({layout().total()}));  // the gaps between parameters stay zero
    leaves_.insert(leaves_.begin(), spare_.back());       // behind: a step's first is the same at every step
  }
  Tensor t = spare_.back();
  spare_.pop_back();
  return t;
}

Tensor GradientBucket::take_sum() {
  if (spare_sums_.empty()) {
    spare_sums_.push_back(Tensor::empty({parameters_.part().size()}));
    sums_.push_back(spare_sums_.back());
  }
  Tensor t = spare_sums_.back();
  spare_sums_.pop_back();
  return t;
}

// Contents undefined, until the exchange is done.
Tensor GradientBucket::take_for_exchange(int64_t elements, DType dtype) {
  const Tensor t = Tensor::empty({elements}, dtype);
  (gives_back_ ? used_ : in_flight_).push_back(t);
  return t;
}

void GradientBucket::begin_step(int64_t micro_count) {
  for (const Tensor& t : in_flight_)  // communicators may hold them for longer
    if (!holds(leaves_, t)) t.storage()->release();
  in_flight_.clear();
  gradient_ = Tensor();
  watched_ = -1;
  keeps_copies_ = false;
  kept_.clear();
  nodes_ = TreeStack<Tensor>(micro_count);
  sum_ = TreeStack<Tensor>(micro_count);
  micro_count_ = micro_count;
  spare_ = leaves_;
  spare_sums_ = sums_;
}

void GradientBucket::begin_micro_batch(int64_t index) {
  micro_ = index;
  leaf_ = take_leaf();
  arrived_.assign(parameters_.members().size(), false);
  pending_ = static_cast<int>(arrived_.size());
  for (size_t i = 0; i < arrived_.size(); ++i) {
    const BucketLayout::Member& member = layout().members()[i];
    auto& record = *parameters_.members()[i].parameter->value.record();
    record.grad = Tensor();
    record.grad_buffer = Tensor::view_of(leaf_.storage(), member.offset, member.shape, DType::kFloat32);
  }
}

void GradientBucket::allocate_leaf() {
  if (!leaf_ || leaf_.allocated()) return;
  schedule_.leaf_needs_memory();
  WithMemoryUse use(MemoryUse::kGradients);
  WithMemoryFor named(parameters_.name());
  leaf_.allocate();
  for (const IndexRange& gap : layout().gaps()) raw::fill(leaf_.slice(0, gap.begin, gap.end), 0);
}

void GradientBucket::gradient_arrived(size_t i) {
  trace_mark();
  if (arrived_.empty() || arrived_[i]) return;
  if (!parameters_.members()[i].parameter->value.record()->grad.defined()) return;  // reached, but nothing flowed
  check(pending_ > 0, "a gradient of ", layout().members()[i].name,
        " came when its micro-batch's were complete: it was used beside its block, or in a backward pass of its own");
  arrived_[i] = true;
  if (--pending_ == 0) leaf_complete();
}

int GradientBucket::end_micro_batch() {
  if (pending_ == 0) return 0;
  allocate_leaf();
  int unused = 0;
  for (size_t i = 0; i < arrived_.size(); ++i)
    if (!arrived_[i]) {
      const BucketLayout::Member& member = layout().members()[i];
      raw::fill(leaf_.slice(0, member.offset, member.offset + member.numel()), 0);
      ++unused;
    }
  pending_ = 0;
  leaf_complete();
  return unused;
}

void GradientBucket::watch(int64_t index, const GradientSink& sink) {
  watched_ = index;
  sink_ = &sink;
}

void GradientBucket::begin_apart(const GradientSink& sink) {
  begin_step(1);
  apart_ = true;
  sink_ = &sink;
  begin_micro_batch(0);
}

void GradientBucket::end_apart() {
  end_micro_batch();
  apart_ = false;
}

void GradientBucket::leaf_complete() {
  Tensor leaf = std::exchange(leaf_, Tensor());
  if (apart_ || micro_ == watched_)
    for (const BucketLayout::Member& m : layout().members())
      (*sink_)(m.name, leaf.slice(0, m.offset, m.offset + m.numel()));
  if (apart_) {  // a leaf that stays is taken again when the next step begins
    if (!keeps_leaves_) leaf.storage()->release();
    return;
  }
  if (reduce_dtype_ != DType::kFloat32) raw::copy(leaf, raw::cast(leaf, reduce_dtype_));  // rounded once, at any size
  if (keeps_copies_) {
    kept_.push_back(Tensor::empty(leaf.shape()));
    raw::copy(kept_.back(), leaf);
  }
  nodes_.push({micro_, micro_ + 1}, std::move(leaf), [this](const Tensor& into, const Tensor& from) {
    add_into(into, from);
    spare_.push_back(from);
  });
  schedule_.bucket_complete(index_);
}

void GradientBucket::reduce(const ReduceRound& round, Stream& merging) {
  WithMemoryUse use(MemoryUse::kGradients);
  WithMemoryFor named(parameters_.name());
  const int shards = mesh_.shard().size, replicas = mesh_.replica().size;
  Nodes nodes = std::move(nodes_.nodes());
  nodes_ = TreeStack<Tensor>(micro_count_);
  if (!keeps_leaves_)
    for (auto& [range, leaf] : nodes) in_flight_.push_back(leaf);
  const Tensor own_node = nodes.empty() ? Tensor() : nodes[0].second;
  merging.wait(current_stream().record());
  if (mode_ == ReduceMode::kFast) {
    reduce_fast(nodes, round.last, merging);
  } else {
    // Within the shard group first: slices come to their owners. Then among the replicas, for parts of the slice.
    const auto own = round.ranges.begin() + mesh_.rank_of(mesh_.replica().index, 0);
    const std::vector<IndexRange> within(own, own + shards), across = joined(round.ranges, shards);
    const DType wire = wire_type(round);
    if (shards > 1) nodes = exchange_first(nodes, within, wire, merging);
    WithStream with(merging);
    if (replicas > 1 && shards == 1) nodes = exchange_first(nodes, across, wire, merging);
    else if (replicas > 1)
      nodes = exchange(mesh_.replica().comm(), nodes, even_parts(parameters_.slice().size(), replicas), across,
                       DType::kFloat32, merging);
    fold(std::move(nodes), round.last);
    if (round.last) place_gradient(own_node);
  }
  reduced_ = merging.record();
}

// Adds a round's nodes to the step's sum. What stays beyond this exchange gets memory of its own.
void GradientBucket::fold(Nodes nodes, bool last) {
  for (auto& [range, value] : nodes)
    sum_.push(range, value, [this](const Tensor& into, const Tensor& from) {
      add_into(into, from);
      if (holds(sums_, from)) spare_sums_.push_back(from);
    });
  if (last && keeps_leaves_ && !gives_back_) return;
  for (auto& [range, value] : sum_.nodes())
    if (!holds(sums_, value)) {
      const Tensor kept = take_sum();
      raw::copy(kept, value);
      value = kept;
    }
}

void GradientBucket::place_gradient(const Tensor& own_node) {
  check(sum_.complete(), collective_name(), ": the ranks' tree nodes do not join");
  const Tensor sum = sum_.nodes()[0].second;  // of this rank's part
  observe(sum);
  measure(sum);
  if (mesh_.replica().size == 1) {
    gradient_ = sum;
    return;
  }
  if (mesh_.shard().size == 1 && keeps_leaves_) {
    gradient_ = own_node ? own_node : take_leaf();  // sent, and no longer needed
  } else {
    if (!gradient_buffer_) gradient_buffer_ = Tensor::empty({parameters_.slice().size()});
    gradient_ = gradient_buffer_;
  }
  // Where leaves stay, sums of the next bucket need not wait for this gather.
  gathering_ = mesh_.replica().comm().all_gather(
      gradient_, sum, BucketLayout::cut_sizes(parameters_.slice(), mesh_.replica().size), collective_name());
  if (!keeps_leaves_) wait_gathered();
}

Tensor GradientBucket::sum_of_part() const {
  check(sum_.complete(), collective_name(), ": there is no sum yet");
  return sum_.nodes()[0].second;
}

void GradientBucket::wait_gathered() { std::exchange(gathering_, {}).wait(); }

// One local sum; the library adds across ranks in an order of its own.
void GradientBucket::reduce_fast(const Nodes& nodes, bool last, Stream& merging) {
  Tensor sum;
  if (nodes.empty()) {
    sum = keeps_leaves_ ? take_leaf() : Tensor::empty({layout().total()});
    in_flight_.push_back(sum);
    raw::fill(sum, 0);
  } else {
    sum = nodes[0].second;
    for (size_t i = 1; i < nodes.size(); ++i) add_into(sum, nodes[i].second);
  }
  Tensor mine = sum;
  Work work;
  if (mesh_.shard().size > 1) {
    mine = Tensor::empty({parameters_.slice().size()});
    in_flight_.push_back(mine);
    work = mesh_.shard().comm().reduce_scatter(mine, sum, BucketLayout::cut_sizes(layout().all(), mesh_.shard().size),
                                               ReduceOp::kSum, collective_name());
  }
  merging.wait(current_stream().record());
  WithStream with(merging);
  work.wait();
  if (keeps_leaves_) {
    gradient_ = mine;
  } else {
    const bool first = !gradient_;
    if (!gradient_buffer_) gradient_buffer_ = Tensor::empty({parameters_.slice().size()});
    gradient_ = gradient_buffer_;
    if (first) raw::copy(gradient_, mine);
    else add_into(gradient_, mine);
  }
  if (!last) return;
  if (mesh_.replica().size > 1) mesh_.replica().comm().all_reduce(gradient_, ReduceOp::kSum, collective_name()).wait();
  measure(gradient_.slice(0, parameters_.part().begin - parameters_.slice().begin,
                          parameters_.part().end - parameters_.slice().begin));
}

void GradientBucket::measure(const Tensor& sum) {
  const TraceOp op("gradient_norm");
  if (!norm_nodes_) {
    const IndexRange part = parameters_.part();
    std::vector<int64_t> ranges;
    for (const BucketLayout::Overlap& o : layout().overlaps(part)) {
      const BucketLayout::Member& member = layout().members()[static_cast<size_t>(o.member)];
      const int64_t first = (member.offset - part.begin) / BucketLayout::kUnit;  // of the member's chunks
      for (const IndexRange& node : maximal_nodes(o.chunks, member.chunks())) {
        ranges.push_back(first + node.begin);
        ranges.push_back(first + node.end);
      }
    }
    WithMemoryUse use(MemoryUse::kScratch);
    const auto count = static_cast<int64_t>(ranges.size());
    norm_sums_ = Tensor::empty({sum.numel() / BucketLayout::kUnit}, DType::kFloat64);
    norm_ranges_ = Tensor::of(ranges, {count});
    norm_nodes_ = Tensor::empty({count / 2}, DType::kFloat64);
  }
  if (sum.numel() == 0) return;
  const float* values = static_cast<const float*>(sum.read());
  TreeSumsArgs a;
  a.values = static_cast<double*>(norm_sums_.write());
  a.ranges = static_cast<const int64_t*>(norm_ranges_.read());
  a.count = norm_nodes_.numel();
  a.out = static_cast<double*>(norm_nodes_.write());
  current_stream().enqueue(
      [values, n = sum.numel(), a](Parallel& p) {
        kernels(p).chunk_norms(p, values, n, a.values);
        kernels(p).tree_sums(p, a);
      },
      {"gradient_norm", sum.numel() * size_of(DType::kFloat32)});
}

void GradientBucket::set_gradients(Slot* slots) const {
  for (size_t i = 0; i < layout().members().size(); ++i) slots[i].gradient = parameters_.of_slice(gradient_, i);
}

void GradientBucket::give_back(Stream& merging) {
  const WithStream with(merging);
  for (const Tensor& t : used_) t.storage()->release();
  used_.clear();
}

void GradientBucket::free_in_order(Stream& merging) {
  give_back(merging);
  if (keeps_leaves_) return;
  current_stream().wait(std::exchange(reduced_, {}));
  for (const Tensor& t : in_flight_) t.storage()->release();
  in_flight_.clear();
}

bool GradientBucket::finish_reduce(std::optional<Seconds> patience) {
  if (!reduced_.synchronize(patience)) return false;
  reduced_ = {};
  std::exchange(gathering_, {}).finish();
  if (keeps_leaves_) return true;  // the sum may lie in what arrived
  for (const Tensor& t : in_flight_) t.storage()->release();
  in_flight_.clear();
  return true;
}

}  // namespace lockstep
