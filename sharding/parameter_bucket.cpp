#include "sharding/parameter_bucket.h"

#include <algorithm>
#include <optional>

#include "core/autograd/node.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kFilled = 1 << 20;  // initial values made at a time where they are not kept in fp32

// Of what a rank keeps of its slice. A whole copy that stays is enough where nothing updates it; elsewhere the files'
// type is kept, unless the compute type is as narrow: then the model would not see more.
DType kept_type(const DataParallelOptions& o, bool of_files, bool streamed) {
  if (!of_files) return DType::kFloat32;
  return streamed && o.compute == DType::kFloat32 ? o.file_type : o.compute;
}

Tensor registered(Communicator& comm, int64_t elements, DType type) {
  if (!is_coded(type)) return comm.registered(elements, type);
  return Tensor::view_of(comm.registered(bytes_of(type, elements), DType::kUInt8).storage(), 0, {elements}, type);
}

}  // namespace

ParameterBucket::ParameterBucket(std::string name, std::vector<NamedParameter> parameters, const Mesh& mesh,
                                 const DataParallelOptions& o, bool frozen)
    : name_(std::move(name)),
      members_(std::move(parameters)),
      mesh_(mesh),
      streamed_(streams_parameters(o, mesh.shard().size)),
      offloaded_(o.offload_optimizer && !frozen),
      frozen_(frozen),
      of_files_(frozen && o.frozen_of_files),
      compute_(of_files_ && o.coded && o.coded(members_[0].name) ? o.coding() : o.compute) {
  for (const NamedParameter& p : members_)
    check(!of_files_ || !o.coded || o.coded(p.name) == is_coded(compute_), name_, ": ", p.name,
          " is not kept as the others");
  for (auto& [full_name, p] : members_) layout_.add(full_name, p->value.shape());
  layout_.even_out(mesh.shard().size * mesh.replica().size);
  slice_ = layout_.slice(mesh.shard().index, mesh.shard().size);
  WithMemoryUse use(MemoryUse::kParameters);
  WithMemoryFor named(name_);
  if (!streamed_ && mesh.shard().size > 1) whole_ = registered(mesh.gathers(), layout_.total(), compute_);
  else whole_ = Tensor::unallocated({layout_.total()}, compute_);
  if (!streamed_) whole_.allocate();
  const DType kept = is_coded(compute_) ? compute_ : kept_type(o, of_files_, streamed_);
  const bool one_memory = !streamed_ && !offloaded_ && compute_ == kept;
  if (one_memory) {
    master_ = whole_.slice(0, slice_.begin, slice_.end);
  } else {
    WithMemoryUse place(offloaded_ ? MemoryUse::kInHost : MemoryUse::kParameters);
    master_ =
        Tensor::unallocated({slice_.size()}, kept, offloaded_ ? host_memory_of(current_device()) : current_device());
    master_.allocate();
  }
  state_ = streamed_ ? State::kAbsent : one_memory && mesh.shard().size == 1 ? State::kWhole : State::kOld;

  const auto of_slice = [&](IndexRange r) { return IndexRange{r.begin - slice_.begin, r.end - slice_.begin}; };
  if (is_coded(kept)) raw::fill(master_.as_bytes(), 0);
  for (const IndexRange& gap : layout_.gaps())
    if (const IndexRange mine = intersect(slice_, gap); !mine.empty()) fill(Init::zeros(), 0, "gap", 0, of_slice(mine));
  for (size_t i = 0; i < members_.size(); ++i) {
    const BucketLayout::Member& member = layout_.members()[i];
    Parameter& p = *members_[i].parameter;
    const IndexRange mine = intersect(slice_, {member.offset, member.offset + member.numel()});
    if (!mine.empty()) fill(p.init, o.seed, member.name, mine.begin - member.offset, of_slice(mine));
    Tensor placed = Tensor::view_of(whole_.storage(), member.offset, member.shape, compute_);
    require_grad(placed, !frozen_);
    p.value = placed;
  }
}

// Elements from `first` on of the tensor `name`, into a part of the slice.
void ParameterBucket::fill(const Init& init, uint64_t seed, std::string_view name, int64_t first, IndexRange r) const {
  if (is_coded(master_.dtype())) return;  // what is loaded brings the codes
  if (master_.dtype() == DType::kFloat32)
    return fill_initial(init, seed, name, first, first + r.size(), static_cast<float*>(master_.write()) + r.begin);
  for (int64_t at = 0; at < r.size(); at += kFilled) {
    const Tensor values = Tensor::empty({std::min(kFilled, r.size() - at)});
    fill_initial(init, seed, name, first + at, first + at + values.numel(), static_cast<float*>(values.write()));
    raw::copy(master_.slice(0, r.begin + at, r.begin + at + values.numel()), values);
  }
}

void ParameterBucket::invalidate(bool by_update) {
  if (!by_update) was_copied_ = false;
  values_changed_ = true;
  if (streamed_) release();
  else if (!master_.same_place(whole_) || mesh_.shard().size > 1) state_ = State::kOld;
}

void ParameterBucket::release() {
  if (!streamed_ || state_ == State::kAbsent) return;
  if (state_ == State::kGathering) wait_whole();
  whole_.storage()->release();
  state_ = State::kAbsent;
}

void ParameterBucket::gather() {
  if (whole()) return;
  std::optional<Storage::Refill> same;  // the bytes that a graph saved come back
  if (!values_changed_) same.emplace(*whole_.storage());
  values_changed_ = false;
  WithMemoryUse use(MemoryUse::kGathered);
  WithMemoryFor named(name_);
  const TraceOp op("gather_parameters");
  whole_.allocate();
  const Tensor mine = whole_.slice(0, slice_.begin, slice_.end);
  if (!master_.same_place(mine) && !copy_is_current()) raw::copy(mine, master_);
  if (mesh_.shard().size > 1)
    gathering_ = all_gather(whole_, mine, BucketLayout::cut_sizes(layout_.all(), mesh_.shard().size));
  state_ = State::kGathering;
  was_copied_ = !streamed_;
  master_version_ = master_.storage()->version();
  whole_version_ = whole_.storage()->version();
}

// Codes travel as bytes.
Work ParameterBucket::all_gather(const Tensor& whole, const Tensor& mine, std::vector<int64_t> counts) const {
  const std::string label = str("parameters of ", name_);
  if (!is_coded(compute_)) return mesh_.gathers().all_gather(whole, mine, counts, label);
  for (int64_t& count : counts) count = bytes_of(compute_, count);
  return mesh_.gathers().all_gather(whole.as_bytes(), mine.as_bytes(), counts, label);
}

bool ParameterBucket::copy_is_current() const {
  return was_copied_ && master_.storage()->version() - master_version_ == whole_.storage()->version() - whole_version_;
}

void ParameterBucket::wait_whole() {
  if (state_ != State::kGathering) return;
  gathering_.wait();
  gathering_ = {};
  state_ = State::kWhole;
}

IndexRange ParameterBucket::part_of(int rank) const {
  return BucketLayout::cut(layout_.slice(mesh_.shard_of(rank), mesh_.shard().size), mesh_.replica().size,
                           mesh_.replica_of(rank));
}

Tensor ParameterBucket::of_slice(const Tensor& slice_tensor, size_t index) const {
  const BucketLayout::Member& member = layout_.members()[index];
  const IndexRange r = intersect(slice_, {member.offset, member.offset + member.numel()});
  if (r.empty()) return slice_tensor.slice(0, 0, 0);
  return slice_tensor.slice(0, r.begin - slice_.begin, r.end - slice_.begin);
}

// Of the parameter, in this rank's slice; 0 where it has none of it.
int64_t ParameterBucket::first_element(size_t index) const {
  const BucketLayout::Member& member = layout_.members()[index];
  const IndexRange r = intersect(slice_, {member.offset, member.offset + member.numel()});
  return r.empty() ? 0 : r.begin - member.offset;
}

std::vector<Slot> ParameterBucket::slots() const {
  std::vector<Slot> out;
  for (size_t i = 0; i < members_.size() && !frozen_; ++i) {
    const BucketLayout::Member& p = layout_.members()[i];
    Slot s;
    s.name = p.name;
    s.region = p.shape;
    s.master = of_slice(master_, i);
    s.offset = first_element(i);
    s.in_host_memory = offloaded_;
    if (!streamed_ && !master_.same_place(whole_.slice(0, slice_.begin, slice_.end)))
      s.copy = of_slice(whole_.slice(0, slice_.begin, slice_.end), i);
    s.decay = members_[i].parameter->decay;
    s.table = members_[i].parameter->table;
    s.group = this;
    s.place = p.offset;
    out.push_back(std::move(s));
  }
  return out;
}

void ParameterBucket::gather_whole(const Tensor& whole, int64_t per_chunk) const {
  if (mesh_.shard().size == 1) return;
  const auto values_of = [&](int64_t elements) { return elements / BucketLayout::kUnit * per_chunk; };
  std::vector<int64_t> counts;
  for (int64_t size : BucketLayout::cut_sizes(layout_.all(), mesh_.shard().size)) counts.push_back(values_of(size));
  const Tensor mine = whole.slice(0, values_of(slice_.begin), values_of(slice_.end));
  mesh_.gathers().all_gather(whole, mine, counts, str("update of ", name_)).wait();
}

std::vector<StateEntry> ParameterBucket::state() const {
  std::vector<StateEntry> out;
  for (size_t i = 0; i < members_.size(); ++i) {
    const BucketLayout::Member& p = layout_.members()[i];
    out.push_back({str(kParameters, p.name), p.shape, first_element(i), of_slice(master_, i)});
  }
  return out;
}

std::vector<StateEntry> ParameterBucket::whole_copies() const {
  std::vector<StateEntry> out;
  if (streamed_ || (mesh_.shard().size == 1 && master_.same_place(whole_))) return out;
  for (const BucketLayout::Member& p : layout_.members())
    out.push_back(
        {str(kParameters, p.name, " (whole copy)"), p.shape, 0, whole_.slice(0, p.offset, p.offset + p.numel())});
  return out;
}

}  // namespace lockstep
