#include "launch/training/weights/trained_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "core/autograd/node.h"
#include "core/base/error.h"
#include "core/decode/decoder.h"
#include "core/interop/hf_family.h"
#include "core/ops/ops.h"
#include "core/state/checkpoint.h"
#include "data/samples/sample_kind.h"
#include "data/samples/text/labelled_text.h"
#include "data/text/record_encoder.h"
#include "launch/config/run_data.h"
#include "launch/config/settings.h"
#include "launch/training/evaluation/evaluate.h"
#include "launch/training/weights/build_model.h"
#include "launch/training/weights/load_model.h"
#include "launch/world/devices.h"

namespace lockstep {

std::vector<float> probabilities_of(const Tensor& logits) {
  std::vector<float> out = cast(logits, DType::kFloat32).to_vector<float>();
  const auto classes = static_cast<size_t>(logits.dim(-1));
  for (size_t at = 0; at < out.size(); at += classes) {
    const std::span<float> row = std::span(out).subspan(at, classes);
    const double largest = *std::max_element(row.begin(), row.end());
    std::vector<double> shares;
    for (float x : row) shares.push_back(std::exp(x - largest));
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (size_t i = 0; i < classes; ++i) row[i] = static_cast<float>(shares[i] / sum);
  }
  return out;
}

TrainedModel::TrainedModel(const std::string& path, const App& app, const std::vector<std::string>& overrides) {
  std::unique_ptr<Settings> settings;
  if (is_pretrained(path)) {
    require(overrides.empty(), ExitCode::kUsage, path, ": is no run, whose configuration could be changed");
    settings = settings_of_pretrained(app, path);
    task_ = settings->pretrained->task;
    if (const auto images = data_of_folder(*settings->pretrained)) data_ = *images;
    data_.schema.classes = task_.next_tokens ? 0 : task_.classes;
    model_ = load_pretrained(*settings, task_);
  } else {
    const Checkpoint checkpoint = open_newest(path);
    settings = settings_of_checkpoint(app, checkpoint, overrides);
    task_ = task_of(checkpoint.info);
    data_ = *known_data_of_run(app, checkpoint);
    model_ = load_model(*settings, checkpoint);
  }
  require(!sample_kind(data_.schema.kind).normalised() || !data_.schema.mean.empty(), ExitCode::kBadData, path,
          is_pretrained(path) ? ": has no preprocessor_config.json that says how images are normalised"
                              : ": was trained on several files, each normalised by its own statistics; join them by "
                                "`lockstep data merge` before training");
  compute_ = settings->parallel.compute;
  if (compute_ != DType::kFloat32) compute_in(*model_, compute_);
  if (vocabulary()) prove_masks_alone(model_->masked_attention(compute_));  // a text is padded to the longest
}

Tensor TrainedModel::normalised(const Tensor& samples) const {
  const std::vector<double>&mean = data_.schema.mean, &stddev = data_.schema.stddev;
  if (mean.empty()) return samples;  // tokens
  require(samples.dim(-1) == std::ssize(mean), ExitCode::kUsage, "samples of ", samples.dim(-1),
          " features or channels, but the model was trained on ", mean.size());
  const double unit = data_.schema.kind == DataKind::kImages ? 255 : 1;
  std::vector<float> out;
  size_t c = 0;
  for (double value : samples.to_vector()) {
    out.push_back(static_cast<float>((value / unit - mean[c]) / stddev[c]));
    c = c + 1 < mean.size() ? c + 1 : 0;
  }
  return Tensor::of(out, samples.shape());
}

Tensor TrainedModel::predictions_of(const Tensor& output) const {
  const DataSchema& schema = data_.schema;
  if (schema.target == TargetKind::kLabels && schema.classes > 0 && output.rank() == 2)
    return Tensor::of(probabilities_of(output), output.shape());
  if (schema.target != TargetKind::kNumbers) return output;
  std::vector<double> out;  // fp32 may hold none of the differences of large numbers
  for (double value : output.to_vector()) out.push_back(schema.target_mean + schema.target_std * value);
  return Tensor::of(out, {std::ssize(out)});
}

Tensor TrainedModel::predict(const Tensor& samples) {
  Shape expected{samples.rank() > 0 ? samples.dim(0) : 0};
  for (int i = 0; i < task_.input.rank(); ++i) expected.push_back(task_.input[i]);
  const bool tokens = data_.schema.kind == DataKind::kTokens;  // of which a sample may have fewer
  require(samples.shape() == expected || (tokens && samples.rank() == 2 && samples.dim(1) <= expected[1]),
          ExitCode::kUsage, "samples of shape ", samples.shape(), ", but the model was trained on ", task_.input,
          ", behind the number of samples");
  const NoGrad no_grad;
  Batch batch;
  batch.add(tokens ? "tokens" : data_.schema.kind == DataKind::kImages ? "images" : "features", normalised(samples));
  return predictions_of(model_->output_of(as_computed(batch, compute_)));
}

Tensor TrainedModel::predict(const std::vector<std::string>& texts) {
  require(vocabulary() && task_.vocabulary > 0, ExitCode::kUsage, "the model was not trained on texts with labels");
  RecordEncoder encoder(*vocabulary());
  const auto end = vocabulary()->record_end();
  const auto context = static_cast<size_t>(task_.input[0]);
  std::vector<std::vector<int32_t>> rows;
  size_t width = 1;
  for (const std::string& text : texts) {
    std::vector<int32_t>& ids = rows.emplace_back();
    std::vector<uint8_t> targets;
    encoder.encode({{text}}, ids, targets);
    require(!ids.empty(), ExitCode::kUsage, "text ", rows.size() - 1, " is empty");
    if (ids.size() > context) {
      ids.resize(context);
      end_cut_text(ids, end);
    }
    width = std::max(width, ids.size());
  }
  std::vector<int32_t> tokens(rows.size() * width), documents(tokens.size()), positions(tokens.size());
  for (size_t i = 0, at = 0; i < rows.size(); ++i, at += width) {
    std::copy(rows[i].begin(), rows[i].end(), tokens.begin() + static_cast<std::ptrdiff_t>(at));
    pad_text({&tokens[at], width}, rows[i].size(), &documents[at], &positions[at]);
  }
  const Shape shape{std::ssize(rows), static_cast<int64_t>(width)};
  const NoGrad no_grad;
  Batch batch;
  batch.add("tokens", Tensor::of(tokens, shape));
  batch.add("documents", Tensor::of(documents, shape));
  batch.add("positions", Tensor::of(positions, shape));
  return predictions_of(model_->output_of(batch));
}

std::string TrainedModel::class_name(int64_t label) const {
  const std::vector<std::string>& names = data_.schema.class_names;
  return label >= 0 && label < std::ssize(names) ? names[static_cast<size_t>(label)] : std::to_string(label);
}

}  // namespace lockstep
