#include "sharding/param_group.h"

#include "core/autograd/node.h"
#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

void add_into(const Tensor& sum, const Tensor& other) {
  const int64_t n = sum.numel();
  const float* from = static_cast<const float*>(other.read());
  float* to = static_cast<float*>(sum.write());
  current_stream().enqueue([to, from, n](Parallel& p) { kernels().tree_add(p, to, from, n); });
}

// How many nodes each rank sends: the tree's largest within its range of micro-batches.
std::vector<std::vector<Range>> nodes_of(const std::vector<Range>& ranges, int64_t total) {
  std::vector<std::vector<Range>> out;
  for (const Range& r : ranges) out.push_back(maximal_nodes(r, total));
  return out;
}

}  // namespace

ParamGroup::ParamGroup(std::string name, std::vector<NamedParameter> parameters, uint64_t seed, bool frozen)
    : name_(std::move(name)), members_(std::move(parameters)), frozen_(frozen) {
  for (auto& [full_name, p] : members_) layout_.add(full_name, p->value.shape());
  parameters_ = Tensor::empty({layout_.total()});
  float* flat = static_cast<float*>(parameters_.write());
  for (size_t i = 0; i < members_.size(); ++i) {
    const Layout::Piece& piece = layout_.pieces()[i];
    Parameter& p = *members_[i].parameter;
    fill_initial(p.init, seed, piece.name, 0, piece.numel(), flat + piece.offset);
    fill_initial(Init::zeros(), 0, "gap", 0, round_up(piece.numel(), Layout::kUnit) - piece.numel(),
                 flat + piece.offset + piece.numel());
    Tensor placed = Tensor::view_of(parameters_.storage(), piece.offset, piece.shape, DType::kFloat32);
    require_grad(placed, !frozen_);
    if (!frozen_) placed.record()->on_grad = [this, i] { gradient_arrived(i); };
    p.value = placed;
  }
}

Tensor ParamGroup::take_buffer() {
  if (spare_.empty()) return Tensor::zeros({layout_.total()});  // the gaps between parameters stay zero
  Tensor t = spare_.back();
  spare_.pop_back();
  return t;
}

void ParamGroup::begin_step(int64_t micro_count) {
  // Last step's sum is no longer needed: its buffers return.
  for (auto& [range, buffer] : nodes_.nodes()) spare_.push_back(buffer);
  if (gradients_ && (nodes_.nodes().empty() || !nodes_.nodes()[0].second.same_place(gradients_)))
    spare_.push_back(gradients_);
  gradients_ = Tensor();
  nodes_ = TreeStack<Tensor>(micro_count);
  micro_count_ = micro_count;
  works_.clear();
}

void ParamGroup::begin_micro_batch(int64_t index) {
  micro_ = index;
  leaf_ = take_buffer();
  arrived_.assign(members_.size(), false);
  pending_ = static_cast<int>(members_.size());
  for (size_t i = 0; i < members_.size(); ++i) {
    const Layout::Piece& piece = layout_.pieces()[i];
    auto& record = *members_[i].parameter->value.record();
    record.grad = Tensor();
    record.grad_buffer = Tensor::view_of(leaf_.storage(), piece.offset, piece.shape, DType::kFloat32);
  }
}

void ParamGroup::gradient_arrived(size_t i) {
  if (pending_ == 0 || arrived_[i]) return;
  arrived_[i] = true;
  if (!members_[i].parameter->value.record()->grad.defined()) {  // reached, but nothing flowed
    arrived_[i] = false;
    return;
  }
  if (--pending_ == 0) leaf_complete();
}

int ParamGroup::end_micro_batch() {
  if (pending_ == 0) return 0;
  int unused = 0;
  for (size_t i = 0; i < members_.size(); ++i)
    if (!arrived_[i]) {
      const Layout::Piece& piece = layout_.pieces()[i];
      raw::fill(Tensor::view_of(leaf_.storage(), piece.offset, {piece.numel()}, DType::kFloat32), 0);
      ++unused;
    }
  pending_ = 0;
  leaf_complete();
  return unused;
}

void ParamGroup::leaf_complete() {
  nodes_.push({micro_, micro_ + 1}, std::exchange(leaf_, Tensor()), [this](const Tensor& into, const Tensor& from) {
    add_into(into, from);
    spare_.push_back(from);
  });
  if (on_ready_) on_ready_();
}

void ParamGroup::launch(Communicator& comm, ReduceMode mode, const std::vector<Range>& ranges) {
  if (comm.size() == 1) return;
  if (mode == ReduceMode::kFast) {
    // One local sum; the library adds across ranks in an order of its own.
    Tensor sum;
    if (nodes_.nodes().empty()) {
      sum = take_buffer();
      raw::fill(sum, 0);
    } else {
      sum = nodes_.nodes()[0].second;
      for (size_t i = 1; i < nodes_.nodes().size(); ++i) add_into(sum, nodes_.nodes()[i].second);
    }
    gradients_ = sum;
    works_.push_back(comm.all_reduce(gradients_, ReduceOp::kSum, cat("gradients of ", name_)));
    return;
  }
  const auto nodes = nodes_of(ranges, micro_count_);
  size_t rounds = 0;
  for (auto& n : nodes) rounds = std::max(rounds, n.size());
  const int size = comm.size(), rank = comm.rank();
  const std::vector<int64_t> slices = layout_.slice_sizes(size);
  const int64_t mine = slices[static_cast<size_t>(rank)];
  if (!received_ || received_.numel() != static_cast<int64_t>(rounds) * size * mine)
    received_ = Tensor::empty({static_cast<int64_t>(rounds) * size * mine});
  for (size_t round = 0; round < rounds; ++round) {
    const bool sends = round < nodes[static_cast<size_t>(rank)].size();
    std::vector<int64_t> send_counts, send_offsets, receive_counts, receive_offsets;
    for (int r = 0; r < size; ++r) {
      send_counts.push_back(sends ? slices[static_cast<size_t>(r)] : 0);
      send_offsets.push_back(layout_.slice(r, size).begin);
      receive_counts.push_back(round < nodes[static_cast<size_t>(r)].size() ? mine : 0);
      receive_offsets.push_back((static_cast<int64_t>(round) * size + r) * mine);
    }
    const Tensor in = sends ? nodes_.nodes()[round].second : parameters_;
    works_.push_back(comm.all_to_all(received_, receive_counts, receive_offsets, in, send_counts, send_offsets,
                                     cat("gradients of ", name_)));
  }
}

void ParamGroup::merge(Communicator& comm, ReduceMode mode, const std::vector<Range>& ranges) {
  for (const Work& w : works_) w.wait();
  works_.clear();
  const int size = comm.size(), rank = comm.rank();
  const Range slice = layout_.slice(rank, size);
  if (mode == ReduceMode::kFast && size > 1) {
    slice_ = gradients_.slice(0, slice.begin, slice.end);
    return;
  }
  if (size == 1) {
    check(nodes_.complete(), "gradients of ", name_, ": ", static_cast<int64_t>(nodes_.nodes().size()),
          " tree nodes left after ", micro_count_, " micro-batches");
    gradients_ = nodes_.nodes()[0].second;
    slice_ = gradients_;
    return;
  }
  const auto nodes = nodes_of(ranges, micro_count_);
  TreeStack<Tensor> stack(micro_count_);
  for (int r = 0; r < size; ++r)
    for (size_t k = 0; k < nodes[static_cast<size_t>(r)].size(); ++k) {
      const int64_t at = (static_cast<int64_t>(k) * size + r) * slice.size();
      stack.push(nodes[static_cast<size_t>(r)][k], received_.slice(0, at, at + slice.size()),
                 [](const Tensor& into, const Tensor& from) { add_into(into, from); });
    }
  check(stack.complete(), "gradients of ", name_, ": the ranks' tree nodes do not join");
  slice_ = stack.nodes()[0].second;
}

Work ParamGroup::gather(Communicator& comm) {
  if (comm.size() == 1 || gradients_) return {};
  // The sent nodes are no longer needed; the first holds the result.
  gradients_ = nodes_.nodes().empty() ? take_buffer() : nodes_.nodes()[0].second;
  return comm.all_gather(gradients_, slice_, layout_.slice_sizes(comm.size()), cat("gradients of ", name_));
}

}  // namespace lockstep
