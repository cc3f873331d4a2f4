#include "sharding/gradient_exchange.h"

#include <algorithm>

#include "core/base/trace.h"
#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"
#include "sharding/gradient_bucket.h"
#include "sharding/tree_merge.h"

namespace lockstep {
namespace {

constexpr int64_t kReceived = 2;  // whole gradient buffers at most that an exchange receives into

}  // namespace

void add_into(const Tensor& sum, const Tensor& other) {
  const TraceOp op("add_gradients");
  const int64_t n = sum.numel();
  const float* from = static_cast<const float*>(other.read());
  float* to = static_cast<float*>(sum.write());
  current_stream().enqueue([to, from, n](Parallel& p) { kernels(p).tree_add(p, to, from, n); },
                           {"add_gradients", 3 * n * size_of(DType::kFloat32)});
}

bool reads_in_place(const Axis& axis) {
  return axis.size > 1 && current_device().type != DeviceType::kCuda && axis.comm().shares_memory();
}

std::vector<IndexRange> even_parts(int64_t size, int ranks) {
  std::vector<IndexRange> out;
  for (int r = 0; r < ranks; ++r) out.push_back(BucketLayout::cut({0, size}, ranks, r));
  return out;
}

std::vector<IndexRange> joined(const std::vector<IndexRange>& ranges, int count) {
  std::vector<IndexRange> out;
  for (size_t r = 0; r < ranges.size(); ++r) {
    if (r % static_cast<size_t>(count) == 0) out.push_back(ranges[r]);
    out.back().end = std::max(out.back().end, ranges[r].end);
  }
  return out;
}

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

}  // namespace lockstep
