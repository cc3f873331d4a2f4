#include "sharding/param_group.h"

#include "core/autograd/node.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

ParamGroup::ParamGroup(std::string name, std::vector<NamedParameter> parameters, const Mesh& mesh,
                       const DataParallelOptions& o, bool frozen)
    : name_(std::move(name)),
      members_(std::move(parameters)),
      mesh_(mesh),
      streamed_(o.level >= ShardLevel::kParameters && mesh.shards() > 1),
      offloaded_(o.offload_optimizer && !frozen),
      keeps_leaves_(o.level < ShardLevel::kGradients),
      compute_(o.compute),
      reduce_dtype_(o.reduce_dtype),
      mode_(o.reduce),
      frozen_(frozen) {
  for (auto& [full_name, p] : members_) layout_.add(full_name, p->value.shape());
  slice_ = layout_.slice(mesh.shard(), mesh.shards());
  WithMemoryUse use(MemoryUse::kParameters);
  WithMemoryFor named(name_);
  if (!streamed_ && mesh.shards() > 1) whole_ = mesh.gathers().registered(layout_.total(), compute_);
  else whole_ = Tensor::unallocated({layout_.total()}, compute_);
  if (!streamed_) whole_.allocate();
  const bool one_memory = !streamed_ && !offloaded_ && compute_ == DType::kFloat32;
  if (one_memory) {
    master_ = whole_.slice(0, slice_.begin, slice_.end);
  } else {
    WithMemoryUse place(offloaded_ ? MemoryUse::kInHost : MemoryUse::kParameters);
    master_ = Tensor::unallocated({slice_.size()}, DType::kFloat32,
                                  offloaded_ ? host_memory_of(current_device()) : current_device());
    master_.allocate();
  }
  state_ = streamed_ ? State::kAbsent : one_memory && mesh.shards() == 1 ? State::kWhole : State::kOld;

  float* flat = static_cast<float*>(master_.write());
  for (size_t i = 0; i < members_.size(); ++i) {
    const Layout::Piece& piece = layout_.pieces()[i];
    Parameter& p = *members_[i].parameter;
    const int64_t end = piece.offset + piece.numel();
    const Range mine = intersect(slice_, {piece.offset, end});
    if (!mine.empty())
      fill_initial(p.init, o.seed, piece.name, mine.begin - piece.offset, mine.end - piece.offset,
                   flat + (mine.begin - slice_.begin));
    const Range gap = intersect(slice_, {end, round_up(end, Layout::kUnit)});
    if (!gap.empty()) fill_initial(Init::zeros(), 0, "gap", 0, gap.size(), flat + (gap.begin - slice_.begin));
    Tensor placed = Tensor::view_of(whole_.storage(), piece.offset, piece.shape, compute_);
    require_grad(placed, !frozen_);
    if (!frozen_) {
      placed.record()->before_grad = [this] { begin_leaf(); };
      placed.record()->on_grad = [this, i] { gradient_arrived(i); };
    }
    p.value = placed;
  }
  // The library reduces the first of a step's leaves, into which the others are added.
  if (mode_ == ReduceMode::kFast && keeps_leaves_ && !frozen_ && mesh.world().size() > 1) {
    WithMemoryUse gradients(MemoryUse::kGradients);
    Communicator& comm = mesh.shards() > 1 ? mesh.shard_group() : mesh.replica_group();
    leaves_.push_back(comm.registered(layout_.total(), DType::kFloat32));
    raw::fill(leaves_.back(), 0);  // as in take_leaf
  }
}

// --- Parameters

void ParamGroup::changed(bool by_update) {
  if (!by_update) was_copied_ = false;
  values_changed_ = true;
  if (streamed_) release();
  else if (!master_.same_place(whole_) || mesh_.shards() > 1) state_ = State::kOld;
}

void ParamGroup::release() {
  if (!streamed_ || state_ == State::kAbsent) return;
  if (state_ == State::kGathering) wait_whole();
  whole_.storage()->release();
  state_ = State::kAbsent;
}

void ParamGroup::gather() {
  if (whole()) return;
  std::optional<Storage::Refill> same;  // the bytes that a graph saved come back
  if (!values_changed_) same.emplace(*whole_.storage());
  values_changed_ = false;
  WithMemoryUse use(MemoryUse::kGathered);
  WithMemoryFor named(name_);
  whole_.allocate();
  const Tensor mine = whole_.slice(0, slice_.begin, slice_.end);
  if (!master_.same_place(mine) && !copy_is_current()) raw::copy(mine, master_);
  if (mesh_.shards() > 1)
    gathering_ = mesh_.gathers().all_gather(whole_, mine, Layout::cut_sizes(layout_.all(), mesh_.shards()),
                                            cat("parameters of ", name_));
  state_ = State::kGathering;
  was_copied_ = !streamed_;
  master_version_ = master_.storage()->version();
  whole_version_ = whole_.storage()->version();
}

bool ParamGroup::copy_is_current() const {
  return was_copied_ && master_.storage()->version() - master_version_ == whole_.storage()->version() - whole_version_;
}

void ParamGroup::wait_whole() {
  if (state_ != State::kGathering) return;
  gathering_.wait();
  gathering_ = {};
  state_ = State::kWhole;
}

// --- What others see

Range ParamGroup::part_of(int world_rank) const {
  return Layout::cut(layout_.slice(mesh_.shard_of(world_rank), mesh_.shards()), mesh_.replicas(),
                     mesh_.replica_of(world_rank));
}

Tensor ParamGroup::of_slice(const Tensor& slice_tensor, const Layout::Piece& piece) const {
  const Range r = intersect(slice_, {piece.offset, piece.offset + piece.numel()});
  if (r.empty()) return slice_tensor.slice(0, 0, 0);
  return slice_tensor.slice(0, r.begin - slice_.begin, r.end - slice_.begin);
}

// Of the parameter, in this rank's slice; 0 where it has none of it.
int64_t ParamGroup::first_element(const Layout::Piece& piece) const {
  const Range r = intersect(slice_, {piece.offset, piece.offset + piece.numel()});
  return r.empty() ? 0 : r.begin - piece.offset;
}

std::vector<Slot> ParamGroup::slots() const {
  std::vector<Slot> out;
  for (size_t i = 0; i < members_.size() && !frozen_; ++i) {
    const Layout::Piece& p = layout_.pieces()[i];
    Slot s;
    s.name = p.name;
    s.global_shape = p.shape;
    s.master = of_slice(master_, p);
    s.offset = first_element(p);
    s.in_host_memory = offloaded_;
    if (!streamed_ && !master_.same_place(whole_.slice(0, slice_.begin, slice_.end)))
      s.copy = of_slice(whole_.slice(0, slice_.begin, slice_.end), p);
    s.decay = members_[i].parameter->decay;
    out.push_back(std::move(s));
  }
  return out;
}

void ParamGroup::set_gradients(Slot* slots) const {
  for (const Layout::Piece& p : layout_.pieces()) (slots++)->gradient = of_slice(gradient_, p);
}

std::vector<StateEntry> ParamGroup::state() const {
  std::vector<StateEntry> out;
  for (const Layout::Piece& p : layout_.pieces())
    out.push_back({"parameters/" + p.name, p.shape, first_element(p), of_slice(master_, p)});
  return out;
}

std::vector<StateEntry> ParamGroup::whole_copies() const {
  std::vector<StateEntry> out;
  if (streamed_ || (mesh_.shards() == 1 && master_.same_place(whole_))) return out;
  for (const Layout::Piece& p : layout_.pieces())
    out.push_back(
        {"parameters/" + p.name + " (whole copy)", p.shape, 0, whole_.slice(0, p.offset, p.offset + p.numel())});
  return out;
}

}  // namespace lockstep
