#include "sharding/gradient_bucket.h"

#include <algorithm>

#include "core/autograd/node.h"
#include "core/base/trace.h"
#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"
#include "sharding/reduce_schedule.h"
#include "sharding/tree_merge.h"

namespace lockstep {
namespace {

constexpr int64_t kReceived = 2;  // whole gradient buffers at most that an exchange receives into

void add_into(const Tensor& sum, const Tensor& other) {
  const TraceOp op("add_gradients");
  const int64_t n = sum.numel();
  const float* from = static_cast<const float*>(other.read());
  float* to = static_cast<float*>(sum.write());
  current_stream().enqueue([to, from, n](Parallel& p) { kernels(p).tree_add(p, to, from, n); },
                           {"add_gradients", 3 * n * size_of(DType::kFloat32)});
}

// May ranks of `axis` read each other's leaves?
bool reads_in_place(const Axis& axis) {
  return axis.size > 1 && current_device().type != DeviceType::kCuda && axis.comm().shares_memory();
}

// [0, size) cut for the ranks of an axis.
std::vector<IndexRange> even_parts(int64_t size, int ranks) {
  std::vector<IndexRange> out;
  for (int r = 0; r < ranks; ++r) out.push_back(BucketLayout::cut({0, size}, ranks, r));
  return out;
}

// What each `count` consecutive ranks, a group or a machine, hold together of a round's micro-batches.
std::vector<IndexRange> joined(const std::vector<IndexRange>& ranges, int count) {
  std::vector<IndexRange> out;
  for (size_t r = 0; r < ranges.size(); ++r) {
    if (r % static_cast<size_t>(count) == 0) out.push_back(ranges[r]);
    out.back().end = std::max(out.back().end, ranges[r].end);
  }
  return out;
}

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

// --- The exchange

// Each rank sends every other its nodes' sums of that one's part; returns all ranks' nodes of this rank's part, merged.
// Sends in the order of the current stream, merges in the order of `merging`; what is given back in the latter's order
// is also sent in it. Where ranks bring many nodes, the parts are exchanged in stretches, one after the other into the
// same memory, so that what arrives never takes more than kReceived whole buffers.
GradientBucket::Nodes GradientBucket::exchange(Communicator& comm, const Nodes& nodes, const Parts& parts,
                                               const std::vector<IndexRange>& ranges, DType wire, Stream& merging) {
  const int size = comm.size(), me = comm.rank();
  std::vector<std::vector<IndexRange>> held;  // by each rank: the largest nodes of the tree within its range
  size_t calls = 0;
  for (const IndexRange& r : ranges) {
    held.push_back(maximal_nodes(r, micro_count_));
    calls = std::max(calls, held.back().size());
  }
  const auto held_by = [&](int rank) -> const std::vector<IndexRange>& { return held[static_cast<size_t>(rank)]; };
  const auto stretches = static_cast<int>(std::max<int64_t>(1, ceil_div(static_cast<int64_t>(calls), kReceived)));
  const IndexRange my_part = parts[static_cast<size_t>(me)];

  Stream& sending = gives_back_ ? merging : current_stream();
  std::vector<Tensor> sent, received(calls);
  {
    const WithStream order(sending);
    const auto in_wire_type = [&](const Tensor& node) {
      if (node.dtype() == wire) return node;
      const Tensor t = take_for_exchange(node.numel(), wire);
      raw::copy(t, node);
      return t;
    };
    for (size_t k = 0; k < calls; ++k)
      sent.push_back(k < held_by(me).size() ? in_wire_type(nodes[k].second) : Tensor::empty({0}, wire));
  }

  Nodes result;
  for (int stretch = 0; stretch < stretches; ++stretch) {
    auto part = [&](int rank) { return BucketLayout::cut(parts[static_cast<size_t>(rank)], stretches, stretch); };
    const int64_t mine = part(me).size();
    std::vector<Work> works;
    std::vector<std::vector<int64_t>> places;
    {
      // A later stretch overwrites what the one before has merged.
      const WithStream order(stretch == 0 ? sending : merging);
      for (size_t k = 0; k < calls; ++k) {
        std::vector<int64_t> send_counts, send_offsets, receive_counts, receive_offsets;
        int64_t arriving = 0;
        const bool sends = k < held_by(me).size();
        for (int r = 0; r < size; ++r) {
          send_counts.push_back(sends && r != me ? part(r).size() : 0);
          send_offsets.push_back(sends ? part(r).begin : 0);
          receive_counts.push_back(r != me && k < held_by(r).size() ? mine : 0);
          receive_offsets.push_back(arriving);
          arriving += receive_counts.back();
        }
        if (!received[k] || received[k].numel() < arriving) received[k] = take_for_exchange(arriving, wire);
        works.push_back(comm.all_to_all(received[k].slice(0, 0, arriving), receive_counts, receive_offsets, sent[k],
                                        send_counts, send_offsets, collective_name()));
        places.push_back(receive_offsets);
      }
    }

    WithStream with(merging);
    for (const Work& w : works) w.wait();
    TreeStack<Tensor> stack(micro_count_);
    for (int r = 0; r < size; ++r)
      for (size_t k = 0; k < held_by(r).size(); ++k) {
        const int64_t at = places[k][static_cast<size_t>(r)];
        Tensor value =
            r == me ? nodes[k].second.slice(0, part(me).begin, part(me).end) : received[k].slice(0, at, at + mine);
        if (value.dtype() != DType::kFloat32) {
          const Tensor wide = take_for_exchange(value.numel());
          raw::copy(wide, value);
          value = wide;
        }
        stack.push(held_by(r)[k], value, add_into);
      }
    if (stretches == 1) return stack.nodes();
    for (size_t i = 0; i < stack.nodes().size(); ++i) {
      const auto& [range, value] = stack.nodes()[i];
      if (stretch == 0) result.emplace_back(range, take_for_exchange(my_part.size()));
      raw::copy(result[i].second.slice(0, part(me).begin - my_part.begin, part(me).end - my_part.begin), value);
    }
  }
  return result;
}

// The same where ranks read each other's leaves: each adds up its parts, one after the other, from where the leaves
// lie. They may be written again once all ranks have read. Below level gradients that is when the step's norms have
// been gathered, which every rank computes from its sums; at level none a gather writes into a leaf before that, but
// only where this rank alone reads, or after those that read there have formed their sums. Elsewhere a fence says so.
GradientBucket::Nodes GradientBucket::exchange_in_place(Communicator& comm, const Nodes& nodes,
                                                        const std::vector<Parts>& parts,
                                                        const std::vector<IndexRange>& ranges, Stream& merging) {
  const int size = comm.size(), me = comm.rank();
  std::vector<IndexRange> held;                // by all ranks, in order
  std::vector<std::pair<size_t, int>> places;  // of each: its place among its rank's, and that rank
  size_t calls = 0;
  for (int r = 0; r < size; ++r) {
    size_t k = 0;
    for (const IndexRange& node : maximal_nodes(ranges[static_cast<size_t>(r)], micro_count_)) {
      held.push_back(node);
      places.emplace_back(k++, r);
    }
    calls = std::max(calls, k);
  }
  const auto elements = [](const Parts& of_rank) {
    int64_t n = 0;
    for (const IndexRange& part : of_rank) n += part.size();
    return n;
  };
  std::vector<Shared> shared;
  for (size_t k = 0; k < calls; ++k) {
    std::vector<int64_t> counts;
    for (int r = 0; r < size; ++r)
      counts.push_back(k < nodes.size() && r != me ? elements(parts[static_cast<size_t>(r)]) : 0);
    shared.push_back(comm.share(k < nodes.size() ? nodes[k].second : Tensor::empty({0}), counts, collective_name()));
  }

  const WithStream with(merging);
  for (const Shared& s : shared) s.work.wait();
  const TraceOp op("add_gradients");
  const TreeMerge merge(held, micro_count_);
  const Parts& mine = parts[static_cast<size_t>(me)];
  const int64_t total = elements(mine);
  // Where no stage follows, the sums are of this rank's part.
  const bool last = comm.size() == mesh_.data().size;
  Nodes result;
  std::vector<float*> outs;
  for (const IndexRange& node : merge.results()) {
    result.emplace_back(node, last ? take_sum() : take_for_exchange(total));
    outs.push_back(static_cast<float*>(result.back().second.write()));
  }
  current_stream().enqueue(
      [merge, outs, shared, places, mine](Parallel& p) mutable {
        constexpr int64_t kWidth = sizeof(float);
        for (const IndexRange& part : mine) {
          const auto buffer = [&](size_t i, int64_t at, int64_t n, float* scratch) {
            const auto& [k, rank] = places[i];
            return static_cast<const float*>(shared[k].read(rank, (part.begin + at) * kWidth, n * kWidth, scratch));
          };
          merge.run(p, buffer, outs, part.size());
          for (float*& out : outs) out += part.size();
        }
      },
      {"add_gradients", static_cast<int64_t>(held.size() + merge.results().size()) * total * size_of(DType::kFloat32)});
  if (!keeps_leaves_) comm.fence(collective_name()).wait();
  return result;
}

// Whole leaves, along mesh_.first(): every rank's part of the buffer.
GradientBucket::Nodes GradientBucket::exchange_first(const Nodes& nodes, const std::vector<IndexRange>& ranges,
                                                     DType wire, Stream& merging) {
  const Axis& all = mesh_.first();
  const Parts parts = even_parts(layout().total(), all.size);
  if (const Stages stages = best_stages(ranges, wire); stages != Stages::kNone)
    return exchange_in_stages(stages, nodes, parts, ranges, wire, merging);
  if (!in_place_) return exchange(all.comm(), nodes, parts, ranges, wire, merging);
  std::vector<Parts> of_ranks;
  for (const IndexRange& part : parts) of_ranks.push_back({part});
  return exchange_in_place(all.comm(), nodes, of_ranks, ranges, merging);
}

// Rank l of a machine first adds up what its machine has for the ranks l of all machines, and then exchanges that with
// those: a machine sends its nodes instead of its ranks'. In steps, what is left to exchange is halved by each, and a
// machine sends the nodes of all that it has met. A sum's buffer holds the parts of the machines in such an order that
// what goes to one other rank is always one stretch of it.
GradientBucket::Nodes GradientBucket::exchange_in_stages(Stages stages, const Nodes& nodes, const Parts& parts,
                                                         const std::vector<IndexRange>& ranges, DType wire,
                                                         Stream& merging) {
  const int machines = mesh_.machines().machines, ranks = mesh_.machines().ranks, machine = mesh_.lane().index;
  const std::vector<Axis> steps = stages == Stages::kSteps ? mesh_.lane_steps() : std::vector<Axis>{mesh_.lane()};
  const auto rank_of = [&](int m, int lane) { return static_cast<size_t>(m * ranks + lane); };
  // By the place along the first step, then along the second, and so on.
  std::vector<int> order{0};
  for (int stride = machines, s = static_cast<int>(steps.size()) - 1; s >= 0; --s) {
    const int extent = steps[static_cast<size_t>(s)].size;
    stride /= extent;
    std::vector<int> longer;
    for (int place = 0; place < extent; ++place)
      for (const int m : order) longer.push_back(m + place * stride);
    order = std::move(longer);
  }
  std::vector<Parts> of_lanes(static_cast<size_t>(ranks));
  for (int lane = 0; lane < ranks; ++lane)
    for (const int m : order) of_lanes[static_cast<size_t>(lane)].push_back(parts[rank_of(m, lane)]);
  const WithStream with(merging);
  Nodes sums;
  if (ranks > 1) {
    const auto first = ranges.begin() + machine * ranks;
    sums = exchange_within_machine(nodes, of_lanes, {first, first + ranks}, wire, merging);
  } else if (steps.size() > 1) {
    sums = arranged(nodes, of_lanes[0]);
  } else {
    sums = nodes;  // where the order is that of the ranks
  }

  const int lane = ranks > 1 ? mesh_.machine().index : 0;
  int stride = 1;
  for (const Axis& step : steps) {
    const auto each = order.size() / static_cast<size_t>(step.size);
    Parts within;  // a sum's buffer
    int64_t at = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i % each == 0) within.push_back({at, at});
      at += parts[rank_of(order[i], lane)].size();
      within.back().end = at;
    }
    std::vector<IndexRange> held;  // by those along the step: of all machines that they have met
    const int block = machine / (stride * step.size) * step.size;
    for (int place = 0; place < step.size; ++place) {
      const auto first = static_cast<size_t>((block + place) * stride * ranks);
      IndexRange& all = held.emplace_back(ranges[first]);
      for (size_t r = first; r < first + static_cast<size_t>(stride * ranks); ++r)
        all.end = std::max(all.end, ranges[r].end);
    }
    sums = exchange(step.comm(), sums, within, held, DType::kFloat32, merging);
    const auto mine = order.begin() + static_cast<std::ptrdiff_t>(each) * step.index;
    order = std::vector<int>(mine, mine + static_cast<std::ptrdiff_t>(each));
    stride *= step.size;
  }
  return sums;
}

// `parts`: by rank of the machine, those of the buffer that it adds up.
GradientBucket::Nodes GradientBucket::exchange_within_machine(const Nodes& nodes, const std::vector<Parts>& parts,
                                                              const std::vector<IndexRange>& ranges, DType wire,
                                                              Stream& merging) {
  const Axis& machine = mesh_.machine();
  if (reads_in_place(machine)) return exchange_in_place(machine.comm(), nodes, parts, ranges, merging);
  Parts all, of_ranks;  // of the buffer; of it, arranged
  int64_t at = 0;
  for (const Parts& of_rank : parts) {
    of_ranks.push_back({at, at});
    for (const IndexRange& part : of_rank) at += part.size();
    of_ranks.back().end = at;
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  return exchange(machine.comm(), arranged(nodes, all), of_ranks, ranges, wire, merging);
}

// These parts of each node's buffer, one after the other.
GradientBucket::Nodes GradientBucket::arranged(const Nodes& nodes, const Parts& parts) {
  Nodes out;
  for (const auto& [range, buffer] : nodes) {
    const Tensor to = take_for_exchange(buffer.numel());
    out.emplace_back(range, to);
    int64_t at = 0;
    for (const IndexRange& part : parts) {
      raw::copy(to.slice(0, at, at + part.size()), buffer.slice(0, part.begin, part.end));
      at += part.size();
    }
  }
  return out;
}

// Which way sends the fewest bytes between machines, and of those that send as many, takes the fewest rounds.
GradientBucket::Stages GradientBucket::best_stages(const std::vector<IndexRange>& ranges, DType wire) const {
  if (!in_stages_) return Stages::kNone;
  const MachineGrid& grid = mesh_.machines();
  // All machines' bytes, where a buffer of fp32 has 4 * machines.
  const auto bytes = [&](const std::vector<IndexRange>& held, int64_t width, int64_t sent) {
    int64_t count = 0;
    for (const IndexRange& r : held) count += static_cast<int64_t>(maximal_nodes(r, micro_count_).size());
    return count * width * sent;
  };
  const std::vector<IndexRange> of_machines = joined(ranges, grid.ranks);
  const int64_t none = bytes(ranges, size_of(wire), grid.machines - 1);
  const int64_t once = bytes(of_machines, size_of(DType::kFloat32), grid.machines - 1);
  int64_t stepwise = 0;
  int met = 1;
  for (const int extent : grid.steps()) {
    // Each machine sends what it has met of a stretch of which `met * extent` ranks have one part each.
    const int64_t sent = grid.machines / (met * extent) * (extent - 1);
    stepwise += met * bytes(joined(of_machines, met), size_of(DType::kFloat32), sent);
    met *= extent;
  }
  if (std::min(stepwise, once) > none) return Stages::kNone;
  return stepwise <= once ? Stages::kSteps : Stages::kOnce;
}

DType GradientBucket::wire_type(const ReduceRound& round) const {
  const bool leaves_alone =
      std::all_of(round.ranges.begin(), round.ranges.end(), [](const IndexRange& r) { return r.size() <= 1; });
  return leaves_alone ? reduce_dtype_ : DType::kFloat32;
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
