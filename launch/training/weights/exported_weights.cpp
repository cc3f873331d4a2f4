#include "launch/training/weights/exported_weights.h"

#include <algorithm>
#include <cmath>

#include "core/models/token_transformer.h"
#include "launch/training/weights/build_model.h"
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
  const auto* of_tokens = dynamic_cast<const TokenTransformer*>(model.get());
  is_tied_ = of_tokens && of_tokens->is_tied();
  for (const NamedParameter& p : model->parameters()) {
    const Shape shape = p.parameter->value.shape();
    const std::string name = str(kParameters, p.name);
    if (!trained_.contains(name)) shapes_[name] = shape;
    (trained_.contains(name) ? others : frozen).push_back({name, shape, 0, Tensor::empty({0})});
  }
  for (const NamedBuffer& b : model->buffers())
    others.push_back({str(kBuffers, b.name), b.buffer->value.shape(), 0, Tensor::empty({0})});
  std::vector<StateEntry> all = frozen;
  all.insert(all.end(), others.begin(), others.end());
  base_.emplace(*settings_, *model, all);
  read_initial(*settings_, base_->checkpoint(), frozen, others);  // are they its tensors?
  Hash128 sum;
  for (const StateEntry& e : frozen)
    for_each_piece({0, e.region.shape.numel()}, kHashedAtOnce, [&](IndexRange r) {
      std::vector<float> values(static_cast<size_t>(r.size()));
      base_->read_stored(e.name, e.region.shape, r, values.data());
      sum += digest_of(e.name, r.begin, values.data(), r.size());
    });
  require_base_of(*settings_, checkpoint_, to_hex(sum));
}

void ExportedWeights::read_unmerged(const std::string& name, IndexRange range, float* out) const {
  if (base_ && !trained_.contains(name)) return base_->read(name, shapes_.at(name), range, out);
  const bool average = name.starts_with(kParameters) && averaged_.contains(name_in_model(name));
  read_elements(checkpoint_, average ? str(kAverages, name_in_model(name)) : name, range, out);
}

void ExportedWeights::read(const std::string& name, IndexRange range, float* out) const {
  read_unmerged(name, range, out);
  if (!name.ends_with(kWeightName)) return;
  const std::string layer = name.substr(0, name.size() - kWeightName.size());
  const Shape& shape = shapes_.at(name);
  for (std::string_view a : {kLoraA, kLoraEmbeddingA})
    if (trained_.contains(str(layer, a))) return merge(name, layer, {0, shape[0]}, range, out);
  const auto parts = lora_parts(layer);
  const auto rows = shape[0] / std::max<int64_t>(1, static_cast<int64_t>(parts.size()));
  for (int64_t i = 0; const std::string_view part : parts) {
    const std::string of_part = str(layer, ".", part);
    if (trained_.contains(str(of_part, kLoraA))) merge(name, of_part, {i * rows, (i + 1) * rows}, range, out);
    ++i;
  }
}

void ExportedWeights::open_adapter(const std::string& layer) const {
  if (adapter_.layer == layer) return;
  const auto values = [&](std::string_view end) {
    const std::string name = str(layer, end);
    std::vector<float> out(static_cast<size_t>(trained_.at(name).numel()));
    read_unmerged(name, {0, trained_.at(name).numel()}, out.data());
    return out;
  };
  if (trained_.contains(str(layer, kLoraA))) {
    adapter_ = {layer, values(kLoraA), values(kLoraB), {}};
    if (trained_.contains(str(layer, kLoraMagnitude))) adapter_.factors = factors_of(values(kLoraMagnitude));
    return;
  }
  require(!is_tied_, ExitCode::kBadData, checkpoint_.dir, ": ", name_in_model(layer),
          " has an adapter, and its weight is also the model's head, which has none: there is no merged model; export "
          "the adapter with --to peft");
  // Of an embedding the rows' factors are A, and the columns' are B, which is [width, rank].
  const std::vector<float> b = values(kLoraEmbeddingB);
  const int64_t width = trained_.at(str(layer, kLoraEmbeddingB))[0], rank = trained_.at(str(layer, kLoraEmbeddingB))[1];
  std::vector<float> turned(b.size());
  for (int64_t c = 0; c < width; ++c)
    for (int64_t k = 0; k < rank; ++k)
      turned[static_cast<size_t>(k * width + c)] = b[static_cast<size_t>(c * rank + k)];
  adapter_ = {layer, std::move(turned), values(kLoraEmbeddingA), {}};
}

// What the rows of W + scale B A are multiplied by to get these lengths.
std::vector<double> ExportedWeights::factors_of(const std::vector<float>& lengths) const {
  const LayerPart part = split_part(adapter_.layer);
  const std::string name = str(part.layer, kWeightName);
  const Shape& shape = shapes_.at(name);
  const int64_t count = std::ssize(lengths), first = part.index * count;
  std::vector<double> row(static_cast<size_t>(shape[1])), out;
  const auto read = [&](IndexRange range, float* values) { read_unmerged(name, range, values); };
  for_rows(shape, {first, first + count}, read, [&](int64_t r, const float* values) {
    add_change(r - first, {0, shape[1]}, row);
    double squares = 0;
    for (int64_t i = 0; i < shape[1]; ++i) {
      const double v = values[i] + row[static_cast<size_t>(i)];
      squares += v * v;
    }
    out.push_back(lengths[static_cast<size_t>(r - first)] / std::sqrt(squares));
  });
  return out;
}

// row[i] = scale (B A)[r, i] for columns [columns) of the adapter that is open.
void ExportedWeights::add_change(int64_t r, IndexRange columns, std::vector<double>& row) const {
  const auto in = std::ssize(row), rank = std::ssize(adapter_.a) / in;
  const double scale = settings_->lora.scale_of(name_in_model(adapter_.layer));
  std::fill(row.begin(), row.end(), 0.0);
  for (int64_t k = 0; k < rank; ++k) {
    const double of_b = adapter_.b[static_cast<size_t>(r * rank + k)];
    const float* of_a = adapter_.a.data() + k * in;
    for (int64_t i = columns.begin; i < columns.end; ++i) row[static_cast<size_t>(i)] += of_b * of_a[i];
  }
  for (int64_t i = columns.begin; i < columns.end; ++i) row[static_cast<size_t>(i)] *= scale;
}

// out += scale B A, where `rows` of the weight are those of B.
void ExportedWeights::merge(const std::string& name, const std::string& layer, IndexRange rows, IndexRange range,
                            float* out) const {
  open_adapter(layer);
  const int64_t in = shapes_.at(name)[1];
  const IndexRange mine = intersect(range, {rows.begin * in, rows.end * in});
  std::vector<double> row(static_cast<size_t>(in));
  for (int64_t at = mine.begin; at < mine.end;) {
    const int64_t r = at / in, end = std::min(mine.end, (r + 1) * in);
    add_change(r - rows.begin, {at - r * in, end - r * in}, row);
    const double factor = adapter_.factors.empty() ? 1 : adapter_.factors[static_cast<size_t>(r - rows.begin)];
    for (; at < end; ++at)
      out[at - range.begin] =
          static_cast<float>(factor * (out[at - range.begin] + row[static_cast<size_t>(at - r * in)]));
  }
}

}  // namespace lockstep
