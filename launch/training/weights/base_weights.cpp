#include "launch/training/weights/base_weights.h"

#include <algorithm>

#include "core/interop/load_weights.h"
#include "core/nn/init.h"
#include "launch/training/weights/build_model.h"

namespace lockstep {

BaseWeights::BaseWeights(const Settings& settings, Module& model, const std::vector<StateEntry>& entries)
    : settings_(settings) {
  for (const std::string& name : coded_weights(settings, model)) coded_.insert(str(kParameters, name));
  for (const NamedParameter& p : model.parameters())
    if (!settings.init_holds(p.name)) fresh_[str(kParameters, p.name)] = p.parameter->init;
  if (!settings.pretrained) {
    checkpoint_ = open_newest(settings.init.from);
    return;
  }
  folder_ = with_own_names(*settings.pretrained, entries);
  for (const HfTensor& t : folder_.tensors) tensors_[t.name] = &t;
  files_ = WeightFiles::open(folder_.folder);
}

void BaseWeights::read_stored(const std::string& name, const Shape& shape, IndexRange range, float* out) const {
  if (const auto init = fresh_.find(name); init != fresh_.end()) {
    const Tensor values = Tensor::empty({range.size()});
    fill_initial(init->second, settings_.parallel.seed, name_in_model(name), range.begin, range.end,
                 static_cast<float*>(values.write()));
    const std::vector<float> there = values.to_vector<float>();
    std::copy(there.begin(), there.end(), out);
    return;
  }
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

void for_rows(const Shape& shape, IndexRange rows, const ReadValues& read,
              const std::function<void(int64_t row, const float* values)>& visit) {
  constexpr int64_t kElementsAtOnce = 1 << 20;
  const int64_t in = shape[1], most = std::max<int64_t>(1, kElementsAtOnce / in);
  std::vector<float> values;
  for (int64_t begin = rows.begin; begin < rows.end; begin += most) {
    const int64_t end = std::min(rows.end, begin + most);
    values.resize(static_cast<size_t>((end - begin) * in));
    read({begin * in, end * in}, values.data());
    for (int64_t r = begin; r < end; ++r) visit(r, values.data() + (r - begin) * in);
  }
}

}  // namespace lockstep
