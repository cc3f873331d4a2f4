#include "data/samples/unlabelled.h"

#include <cstring>

namespace lockstep {
namespace {

bool is_target(std::string_view name) { return name == kLabels || name == kTargets; }

size_t bytes_of(const TensorSpec& t) { return static_cast<size_t>(t.shape.numel() * size_of(t.dtype)); }

}  // namespace

Unlabelled::Unlabelled(std::shared_ptr<const Dataset> inputs, const DataSchema& like)
    : inputs_(std::move(inputs)), spec_(inputs_->spec()) {
  const std::vector<TensorSpec> stored = std::move(spec_.tensors);
  const bool keeps = like.target == TargetKind::kLabels && like.classes == 0;
  spec_.tensors.clear();
  for (const TensorSpec& t : stored) {
    const bool kept = keeps || !is_target(t.name);
    from_.push_back(kept ? static_cast<int>(spec_.tensors.size()) : -1);
    if (kept) spec_.tensors.push_back(t);
  }
  if (keeps) return;
  const bool numbers = like.target == TargetKind::kNumbers;
  Shape shape;
  if (like.target == TargetKind::kMasks) shape = {spec_.input().shape[0], spec_.input().shape[1]};
  if (numbers) spec_.tensors.push_back({std::string(kTargets), DType::kFloat32, {}});
  else spec_.tensors.push_back({std::string(kLabels), DType::kInt32, shape});
  spec_.classes = numbers ? 1 : like.classes;
  spec_.target_mean = like.target_mean, spec_.target_std = like.target_std;
}

void Unlabelled::read(int64_t epoch, int64_t index, SampleMemory sample) const {
  const std::vector<TensorSpec>& stored = inputs_->spec().tensors;
  std::vector<std::vector<uint8_t>> unused;
  std::vector<void*> memory;
  for (size_t i = 0; i < stored.size(); ++i) {
    if (from_[i] < 0) unused.emplace_back(bytes_of(stored[i]));
    memory.push_back(from_[i] < 0 ? unused.back().data() : sample[static_cast<size_t>(from_[i])]);
  }
  inputs_->read(epoch, index, memory);
  for (size_t i = 0; i < spec_.tensors.size(); ++i)
    if (!unused.empty() && is_target(spec_.tensors[i].name)) std::memset(sample[i], 0, bytes_of(spec_.tensors[i]));
}

}  // namespace lockstep
