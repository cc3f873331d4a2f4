// Module's state as named tensors, and as a file.
#include <algorithm>
#include <map>
#include <vector>

#include "core/base/partition.h"
#include "core/io/safetensors.h"
#include "core/nn/module.h"
#include "core/tensor/raw_ops.h"
#include "core/tensor/stretches.h"

namespace lockstep {
namespace {

constexpr int64_t kAtATime = 1 << 20;  // elements on their way at a time

}  // namespace

std::vector<NamedTensor> Module::state_dict() const {
  std::vector<NamedTensor> out;
  for (auto& p : parameters()) out.push_back({p.name, p.parameter->value.detach()});
  for (auto& b : buffers()) out.push_back({b.name, b.buffer->value});
  return out;
}

void Module::save(const std::string& path) const {
  const std::vector<NamedTensor> all = state_dict();
  std::vector<WeightToWrite> weights;
  for (const NamedTensor& t : all) {
    check(t.value.allocated(), "save: ", t.name, " has no values; place_parameters() or load() gives it some");
    weights.push_back({.name = t.name, .shape = t.value.shape()});
  }
  WeightWriter writer(path, std::move(weights));
  for (const NamedTensor& t : all)
    for_each_stretch(t.value, kAtATime, [&](int64_t, const float* values, int64_t n) { writer.write(values, n); });
  writer.commit();
}

void Module::load(const std::string& path) {
  const WeightFiles files = WeightFiles::open(path);
  const std::vector<NamedTensor> all = state_dict();
  for (const NamedTensor& t : all) {
    const StoredWeight* stored = files.find(t.name);
    require(stored != nullptr, ExitCode::kBadData, path, ": has no tensor ", t.name, ", which the module has");
    require(stored->shape == t.value.shape(), ExitCode::kBadData, path, ": ", t.name, " is ", stored->shape,
            " there, and ", t.value.shape(), " in the module");
  }
  for (const StoredWeight& w : files.weights())
    require(std::any_of(all.begin(), all.end(), [&](auto& t) { return t.name == w.name; }), ExitCode::kBadData, path,
            ": has a tensor ", w.name, ", which the module lacks");
  for (const NamedTensor& t : all) {
    if (!t.value.allocated()) t.value.storage()->allocate();
    const Tensor flat = t.value.flatten();
    for_each_piece({0, flat.numel()}, kAtATime, [&](IndexRange r) {
      std::vector<float> values(static_cast<size_t>(r.size()));
      files.read(*files.find(t.name), r, values.data());
      raw::copy(flat.slice(0, r.begin, r.end), raw::to_device(Tensor::of(values, {r.size()}), t.value.device()));
    });
  }
  name_tree(name_);
}

}  // namespace lockstep
