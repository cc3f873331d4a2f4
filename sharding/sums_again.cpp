// The part of DataParallel that forms a bucket's sum a second time, on other ranks than in the step.
#include <algorithm>
#include <map>

#include "core/tensor/raw_ops.h"
#include "sharding/data_parallel.h"
#include "sharding/mesh.h"
#include "sharding/reduce_schedule.h"

namespace lockstep {
namespace {

// By tensor: what part `part` of a bucket's buffer holds of each.
void give(const BucketLayout& layout, IndexRange part, const Tensor& sum, const GradientSink& sink) {
  for (const BucketLayout::Overlap& o : layout.overlaps(part)) {
    const BucketLayout::Member& m = layout.members()[static_cast<size_t>(o.member)];
    const int64_t at = m.offset + o.elements.begin - part.begin;
    sink(str(m.name, "[", o.elements.begin, ":", o.elements.end, "]"), sum.slice(0, at, at + o.elements.size()));
  }
}

}  // namespace

void DataParallel::sum_of_part(size_t index, const GradientSink& sink) const {
  const GradientBucket& bucket = *reductions_->buckets()[index];
  give(bucket.parameters().layout(), bucket.parameters().part(), bucket.sum_of_part(), sink);
}

// The k-th leaves of all ranks travel together; a rank adds up all leaves of the step, by the tree.
void DataParallel::sum_again(size_t index, const std::vector<int>& of, const GradientSink& sink) {
  const GradientBucket& bucket = *reductions_->buckets()[index];
  const ParameterBucket& parameters = bucket.parameters();
  const Axis& data = mesh_->data();
  const auto part = [&](int rank) { return parameters.part_of(of[static_cast<size_t>(rank)]); };
  const IndexRange mine = part(data.index);
  std::vector<std::vector<int64_t>> held;  // micro-batches, by rank
  size_t calls = 0;
  for (int r = 0; r < data.size; ++r) {
    held.push_back(micro_batches_of(schedule(), micro_count_, r, data.size));
    calls = std::max(calls, held.back().size());
  }
  std::map<int64_t, Tensor> leaves;  // this part of them, by micro-batch
  for (size_t k = 0; k < calls; ++k) {
    std::vector<int64_t> send_counts, send_offsets, receive_counts, receive_offsets;
    int64_t arriving = 0;
    const bool sends = k < held[static_cast<size_t>(data.index)].size();
    for (int r = 0; r < data.size; ++r) {
      send_counts.push_back(sends ? part(r).size() : 0);
      send_offsets.push_back(sends ? part(r).begin : 0);
      receive_counts.push_back(k < held[static_cast<size_t>(r)].size() ? mine.size() : 0);
      receive_offsets.push_back(arriving);
      arriving += receive_counts.back();
    }
    const Tensor received = Tensor::empty({arriving});
    const Tensor sent = sends ? bucket.kept_leaves()[k] : Tensor::empty({0});
    data.comm()
        .all_to_all(received, receive_counts, receive_offsets, sent, send_counts, send_offsets, "gradients again")
        .wait();
    for (int r = 0; r < data.size; ++r) {
      const auto& micro = held[static_cast<size_t>(r)];
      const int64_t at = receive_offsets[static_cast<size_t>(r)];
      if (k < micro.size()) leaves[micro[k]] = received.slice(0, at, at + mine.size());
    }
  }
  TreeStack<Tensor> sum(micro_count_);
  for (auto& [micro, leaf] : leaves)
    sum.push({micro, micro + 1}, leaf, [](const Tensor& into, const Tensor& from) { raw::add(into, into, from); });
  bucket.observe(sum.nodes()[0].second);
  give(parameters.layout(), mine, sum.nodes()[0].second, sink);
}

}  // namespace lockstep
