#include "launch/training/exported_weights.h"

#include <algorithm>

#include "core/interop/load_weights.h"
#include "launch/training/build_model.h"
#include "optim/weight_average.h"

namespace lockstep {
namespace {

constexpr int64_t kHashedAtOnce = 1 << 20;  // elements read at a time
constexpr std::string_view kWeightName = ".weight";

}  // namespace

ExportedWeights::ExportedWeights(const Checkpoint& c, const Settings* settings, bool averages)
    : checkpoint_(c), settings_(settings) {
  if (averages) averaged_ = averaged_parameters(c);
  auto& held = c.info.base.empty() ? shapes_ : trained_;
  for (const StoredSlice& s : c.slices)
    if (s.name.starts_with(kParameters) || s.name.starts_with(kBuffers)) held[s.name] = s.region.shape;
  require(!held.empty(), ExitCode::kBadData, c.dir, ": holds no parameters");
  if (!c.info.base.empty()) add_base();
}

void ExportedWeights::add_base() {
  for (const auto& [name, shape] : trained_)
    if (!is_lora_parameter(name)) shapes_[name] = shape;
  std::vector<StateEntry> frozen, others;
  const auto model = build_model(*settings_, task_of(checkpoint_.info));
  for (const std::string& name : coded_weights(*settings_, *model)) coded_.insert(str(kParameters, name));
  for (const NamedParameter& p : model->parameters()) {
    const Shape shape = p.parameter->value.shape();
    const std::string name = str(kParameters, p.name);
    if (!trained_.contains(name)) shapes_[name] = shape;
    (trained_.contains(name) ? others : frozen).push_back({name, shape, 0, Tensor::empty({0})});
  }
  for (const NamedBuffer& b : model->buffers())
    others.push_back({str(kBuffers, b.name), b.buffer->value.shape(), 0, Tensor::empty({0})});
  if (settings_->pretrained) {
    std::vector<StateEntry> all = frozen;
    all.insert(all.end(), others.begin(), others.end());
    folder_ = with_own_names(*settings_->pretrained, all);
    for (const HfTensor& t : folder_.tensors) tensors_[t.name] = &t;
    files_ = WeightFiles::open(folder_.folder);
  } else {
    base_ = open_newest(settings_->init.from);
  }
  read_initial(*settings_, base_ ? &*base_ : nullptr, frozen, others);  // are they its tensors?
  Hash128 sum;
  for (const StateEntry& e : frozen)
    for_each_piece({0, e.region.shape.numel()}, kHashedAtOnce, [&](IndexRange r) {
      std::vector<float> values(static_cast<size_t>(r.size()));
      read_stored(e.name, r, values.data());
      sum += digest_of(e.name, r.begin, values.data(), r.size());
    });
  require_base_of(*settings_, checkpoint_, to_hex(sum));
}

void ExportedWeights::read_stored(const std::string& name, IndexRange range, float* out) const {
  if (!checkpoint_.info.base.empty() && !trained_.contains(name)) {
    if (base_) return read_elements(*base_, name, range, out);
    return read_weight(*tensors_.at(name), shapes_.at(name), folder_, *files_, range, out);
  }
  const bool average = name.starts_with(kParameters) && averaged_.contains(name_in_model(name));
  read_elements(checkpoint_, average ? str(kAverages, name_in_model(name)) : name, range, out);
}

void ExportedWeights::read(const std::string& name, IndexRange range, float* out) const {
  read_stored(name, range, out);
  if (coded_.contains(name)) round_coded(name, range, out);
  if (!name.ends_with(kWeightName)) return;
  const std::string layer = name.substr(0, name.size() - kWeightName.size());
  const Shape& shape = shapes_.at(name);
  if (trained_.contains(str(layer, kLoraA))) return merge(layer, {0, shape[0]}, range, out);
  const auto parts = lora_parts(layer);
  const auto rows = shape[0] / std::max<int64_t>(1, static_cast<int64_t>(parts.size()));
  for (int64_t i = 0; const std::string_view part : parts) {
    const std::string of_part = str(layer, ".", part);
    if (trained_.contains(str(of_part, kLoraA))) merge(of_part, {i * rows, (i + 1) * rows}, range, out);
    ++i;
  }
}

// The model was trained beside what the codes decode to.
void ExportedWeights::round_coded(const std::string& name, IndexRange range, float* out) const {
  if (coder_.first != name) {
    const auto read = [&](IndexRange r, float* values) { read_stored(name, r, values); };
    coder_.second = coder_of(settings_->parallel.coding(), shapes_.at(name), read);
    coder_.first = name;
  }
  coder_.second->round(range.begin, out, range.size());
}

// out += scale B A, where `rows` of the weight are those of B.
void ExportedWeights::merge(const std::string& layer, IndexRange rows, IndexRange range, float* out) const {
  const std::string a = str(layer, kLoraA), b = str(layer, kLoraB);
  const int64_t rank = trained_.at(a)[0], in = trained_.at(a)[1];
  const IndexRange mine = intersect(range, {rows.begin * in, rows.end * in});
  if (mine.empty()) return;
  if (adapter_.layer != layer) {
    adapter_ = {layer, rank, std::vector<float>(static_cast<size_t>(trained_.at(a).numel())),
                std::vector<float>(static_cast<size_t>(trained_.at(b).numel()))};
    read_stored(a, {0, trained_.at(a).numel()}, adapter_.a.data());
    read_stored(b, {0, trained_.at(b).numel()}, adapter_.b.data());
  }
  const double scale = settings_->lora.scale();
  std::vector<double> row(static_cast<size_t>(in));
  for (int64_t at = mine.begin; at < mine.end;) {
    const int64_t r = at / in, end = std::min(mine.end, (r + 1) * in);
    std::fill(row.begin(), row.end(), 0.0);
    for (int64_t k = 0; k < rank; ++k) {
      const double of_b = adapter_.b[static_cast<size_t>((r - rows.begin) * rank + k)];
      const float* of_a = adapter_.a.data() + k * in;
      for (int64_t i = at - r * in; i < end - r * in; ++i) row[static_cast<size_t>(i)] += of_b * of_a[i];
    }
    for (; at < end; ++at)
      out[at - range.begin] = static_cast<float>(out[at - range.begin] + scale * row[static_cast<size_t>(at - r * in)]);
  }
}

}  // namespace lockstep
