#include "launch/predict/layer_values.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/base/error.h"
#include "core/base/ignore_index.h"
#include "core/ops/ops.h"

namespace lockstep {
namespace {

// A sample's bytes are float64: how many tokens were added up, and the sums of their values.
class LayerValues final : public PredictedValues {
 public:
  LayerValues(Module& module, const std::string& layer, Pooling pooling)
      : module_(module), layer_(layer), pooling_(pooling) {
    module_.set_observer([this](const Tensor& result) { result_ = result; });
  }
  ~LayerValues() override { module_.set_observer({}); }

  std::string encode(const Tensor&, const Batch& batch) override {
    require(result_.defined(), ExitCode::kUsage, "--layer ", layer_,
            ": the model uses this module otherwise than by calling it, so that nothing is seen of it; name another",
            module_.children().empty() ? "" : ", such as one of those in it");
    const Tensor& input = batch.tensors().front().second;
    require(result_.rank() >= 1 && result_.dim(0) == input.dim(0), ExitCode::kUsage, "--layer ", layer_, ": gives ",
            result_, " for a batch of ", input.dim(0), " samples, so that nobody knows which values are whose");
    const bool tokens = input.rank() == 2 && !is_floating(input.dtype());
    const bool pools = tokens && result_.rank() >= 3 && result_.dim(1) == input.dim(1);  // [B, T, ...]
    shape_ = {};
    for (int i = pools ? 2 : 1; i < result_.rank(); ++i) shape_.push_back(result_.dim(i));
    const std::vector<float> values = cast(result_, DType::kFloat32).to_vector<float>();
    const auto width = static_cast<size_t>(shape_.numel());
    const auto samples = static_cast<size_t>(input.dim(0));
    const std::vector<double> own = pools ? own_tokens(batch) : std::vector<double>(samples, 1);
    const size_t rows = own.size() / samples;
    std::vector<double> out;
    for (size_t at = 0; at < own.size(); at += rows)
      add_sample(std::span(own).subspan(at, rows), std::span(values).subspan(at * width, rows * width), out);
    result_ = {};
    return {reinterpret_cast<const char*>(out.data()), out.size() * sizeof(double)};
  }
  size_t bytes() const override { return (1 + static_cast<size_t>(shape_.numel())) * sizeof(double); }

  // Of a text in several windows.
  std::string joined(std::string_view parts) const override {
    if (pooling_ == Pooling::kFirst) return std::string(parts.substr(0, bytes()));
    if (pooling_ == Pooling::kLast) return std::string(parts.substr(parts.size() - bytes()));
    std::vector<double> sum(bytes() / sizeof(double), 0);
    for (size_t at = 0; at < parts.size(); at += bytes()) {
      const std::vector<double> part = doubles_in(parts.substr(at, bytes()));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    return {reinterpret_cast<const char*>(sum.data()), bytes()};
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (int64_t i = 0; i < shape_.numel(); ++i) out.push_back(str("value_", i));
    return out;
  }
  std::vector<std::string> json_names() const override { return {"values"}; }
  JsonObject told(std::string_view sample) const override {
    JsonObject out;
    for (float value : floats_of(sample)) out.emplace_back(str("value_", out.size()), told_number(value));
    return out;
  }
  JsonObject json(std::string_view sample) const override {
    std::vector<JsonValue> list;
    for (float value : floats_of(sample)) list.push_back(told_number(value));
    return {{"values", json_array(list)}};
  }
  Shape array_shape() const override { return shape_; }
  std::string elements(std::string_view sample) const override {
    const std::vector<float> values = floats_of(sample);
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }

 private:
  // 1 for each token of a text, 0 for what follows it in its row, which is another document or has no label.
  static std::vector<double> own_tokens(const Batch& batch) {
    const Tensor* documents = batch.find("documents");
    std::vector<double> out = documents ? documents->to_vector() : batch[kLabels].to_vector();
    for (double& value : out) value = documents ? value == 0 : value != kIgnoreIndex;
    return out;
  }

  void add_sample(std::span<const double> own, std::span<const float> values, std::vector<double>& out) const {
    const size_t width = values.size() / own.size();
    size_t count = 0;
    while (count < own.size() && own[count] != 0) ++count;
    count = std::max<size_t>(count, 1);  // a text of one token has no label
    const size_t begin = pooling_ == Pooling::kLast ? count - 1 : 0;
    const size_t end = pooling_ == Pooling::kFirst ? 1 : count;
    const size_t place = out.size();
    out.resize(place + 1 + width, 0);
    out[place] = static_cast<double>(end - begin);
    for (size_t token = begin; token < end; ++token)
      for (size_t i = 0; i < width; ++i) out[place + 1 + i] += values[token * width + i];
  }

  static std::vector<double> doubles_in(std::string_view bytes) {
    std::vector<double> out(bytes.size() / sizeof(double));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  static std::vector<float> floats_of(std::string_view sample) {
    const std::vector<double> sums = doubles_in(sample);
    std::vector<float> out;
    for (size_t i = 1; i < sums.size(); ++i) out.push_back(static_cast<float>(sums[i] / sums[0]));
    return out;
  }

  Module& module_;
  const std::string layer_;
  const Pooling pooling_;
  Tensor result_;  // of the module's last call
  Shape shape_;    // of a sample
};

// The modules within the one that the beginning of `layer` names.
std::string names_near(Module& model, std::string layer) {
  while (!layer.empty() && !model.find(layer)) layer.resize(layer.find('.') == layer.npos ? 0 : layer.rfind('.'));
  std::string out;
  for (const Module* block : model.find(layer)->blocks()) out += str(out.empty() ? "" : ", ", block->name());
  return out.empty() ? str(layer, " has none within it") : "there are " + out;
}

}  // namespace

std::unique_ptr<PredictedValues> layer_values(Module& model, const std::string& layer, Pooling pooling) {
  Module* module = model.find(layer);
  require(module != nullptr, ExitCode::kUsage, "--layer ", layer, ": the model has no such module; ",
          names_near(model, layer));
  return std::make_unique<LayerValues>(*module, layer, pooling);
}

}  // namespace lockstep
