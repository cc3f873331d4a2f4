#include "sharding/model_buffers.h"

#include <limits>

#include "core/base/trace.h"
#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

ModelBuffers::ModelBuffers(const Module& model, const Mesh& mesh) : mesh_(mesh), buffers_(model.buffers()) {
  for (auto& [name, b] : buffers_) {
    const int64_t begin = layout_.total();
    layout_.add(name, b->value.shape());
    if (runs_.empty() || runs_.back().rate != b->rate) runs_.push_back({{begin, begin}, b->rate});
    runs_.back().elements.end = layout_.total();
  }
  if (buffers_.empty()) return;
  WithMemoryUse use(MemoryUse::kParameters);
  WithMemoryFor named("buffers");
  flat_ = Tensor::zeros({layout_.total()});
  for (size_t i = 0; i < buffers_.size(); ++i) {
    Buffer& b = *buffers_[i].buffer;
    b.value = Tensor::view_of(flat_.storage(), layout_.members()[i].offset, b.value.shape(), DType::kFloat32);
    raw::fill(b.value, b.initial);
  }
}

void ModelBuffers::collect() {
  if (buffers_.empty()) return;
  const Tensor row = Tensor::zeros({layout_.total()});
  for (size_t i = 0; i < buffers_.size(); ++i) {
    Buffer& b = *buffers_[i].buffer;
    if (b.rate == 0) continue;
    const int64_t at = layout_.members()[i].offset;
    const Tensor place = row.slice(0, at, at + b.value.numel());
    if (b.update) raw::copy(place, b.update.flatten());
    else raw::fill(place, std::numeric_limits<double>::quiet_NaN());  // its module did not run
  }
  updates_.push_back(row);
}

void ModelBuffers::discard() {
  for (auto& [_, b] : buffers_) b->update = {};
}

void ModelBuffers::fold(MicroSchedule schedule, int64_t micro_count, const Tensor& verdict) {
  if (buffers_.empty()) return;
  const TraceOp op("fold_buffers");
  const Axis& data = mesh_.data();
  const int64_t width = layout_.total(), mine = static_cast<int64_t>(updates_.size());
  Tensor rows = Tensor::empty({mine * width});
  for (int64_t i = 0; i < mine; ++i)
    raw::copy(rows.slice(0, i * width, (i + 1) * width), updates_[static_cast<size_t>(i)]);
  std::vector<int64_t> counts;
  std::vector<int32_t> order(static_cast<size_t>(micro_count));
  int32_t row = 0;
  for (int r = 0; r < data.size; ++r) {
    const auto dealt = micro_batches_of(schedule, micro_count, r, data.size);
    for (int64_t i : dealt) order[static_cast<size_t>(i)] = row++;
    counts.push_back(static_cast<int64_t>(dealt.size()) * width);
  }
  check(counts[static_cast<size_t>(data.index)] == rows.numel(), "updates of buffers: ", mine,
        " micro-batches, where this rank was dealt ", counts[static_cast<size_t>(data.index)] / width);
  if (data.size > 1) {
    const Tensor all = Tensor::empty({micro_count * width});
    data.comm().all_gather(all, rows, counts, "updates of buffers").wait();
    rows = all;
  }
  Tensor& there = orders_[micro_count];
  if (!there) there = Tensor::of(order, {micro_count});
  for (const Run& run : runs_) {
    if (run.rate == 0) continue;
    FoldArgs a;
    a.count = micro_count, a.elements = run.elements.size(), a.stride = width;
    a.value = static_cast<float*>(flat_.write()) + run.elements.begin;
    a.rows = static_cast<const float*>(rows.read()) + run.elements.begin;
    a.order = static_cast<const int32_t*>(there.read());
    a.rate = static_cast<float>(run.rate);
    a.verdict = static_cast<const float*>(verdict.read());
    raw::launch([](Parallel& p, const FoldArgs& args) { kernels(p).fold(p, args); }, a);
  }
  updates_.clear();
}

std::vector<StateEntry> ModelBuffers::state() const {
  std::vector<StateEntry> out;
  if (buffers_.empty()) return out;
  for (const BucketLayout::Member& member : layout_.members()) {
    const IndexRange mine = intersect(slice_of(mesh_.shard().index), {member.offset, member.offset + member.numel()});
    const IndexRange elements = mine.empty() ? IndexRange{member.offset, member.offset} : mine;
    out.push_back({str(kBuffers, member.name), member.shape, elements.begin - member.offset,
                   flat_.slice(0, elements.begin, elements.end)});
  }
  return out;
}

void ModelBuffers::gather() {
  if (buffers_.empty() || mesh_.shard().size == 1) return;
  const IndexRange mine = slice_of(mesh_.shard().index);
  const Tensor slice = Tensor::empty({mine.size()});
  raw::copy(slice, flat_.slice(0, mine.begin, mine.end));
  mesh_.gathers()
      .all_gather(flat_, slice, BucketLayout::cut_sizes(layout_.all(), mesh_.shard().size), "buffers")
      .wait();
}

}  // namespace lockstep
