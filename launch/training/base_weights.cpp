#include "launch/training/base_weights.h"

#include "core/interop/load_weights.h"
#include "launch/training/build_model.h"

namespace lockstep {

BaseWeights::BaseWeights(const Settings& settings, Module& model, const std::vector<StateEntry>& entries)
    : settings_(settings) {
  for (const std::string& name : coded_weights(settings, model)) coded_.insert(str(kParameters, name));
  if (!settings.pretrained) {
    checkpoint_ = open_newest(settings.init.from);
    return;
  }
  folder_ = with_own_names(*settings.pretrained, entries);
  for (const HfTensor& t : folder_.tensors) tensors_[t.name] = &t;
  files_ = WeightFiles::open(folder_.folder);
}

void BaseWeights::read_stored(const std::string& name, const Shape& shape, IndexRange range, float* out) const {
  if (checkpoint_) return read_elements(*checkpoint_, name, range, out);
  read_weight(*tensors_.at(name), shape, folder_, *files_, range, out);
}

void BaseWeights::read(const std::string& name, const Shape& shape, IndexRange range, float* out) const {
  if (!coded_.contains(name)) return read_stored(name, shape, range, out);
  if (coder_.first != name) {
    const auto of_tensor = [&](IndexRange r, float* values) { read_stored(name, shape, r, values); };
    coder_.second = coder_of(settings_.parallel.coding(), shape, of_tensor);
    coder_.first = name;
  }
  // By whole blocks.
  const IndexRange blocks{range.begin / kCodedBlock * kCodedBlock,
                          std::min(round_up(range.end, kCodedBlock), shape.numel())};
  std::vector<float> values(static_cast<size_t>(blocks.size()));
  read_stored(name, shape, blocks, values.data());
  coder_.second->round(blocks.begin, values.data(), blocks.size());
  std::copy_n(values.begin() + (range.begin - blocks.begin), range.size(), out);
}

}  // namespace lockstep
