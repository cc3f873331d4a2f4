#include "launch/predict/predicted_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/base/error.h"
#include "core/base/ignore_index.h"
#include "core/ops/ops.h"
#include "data/images/class_colour.h"
#include "data/images/codecs/image_codec.h"
#include "launch/training/weights/trained_model.h"

namespace lockstep {
namespace {

std::vector<float> floats_of(const Tensor& output) { return cast(output, DType::kFloat32).to_vector<float>(); }

std::string float_bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::vector<float> floats_in(std::string_view bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

class ClassProbabilities final : public PredictedValues {
 public:
  ClassProbabilities(const DataSchema& schema, const PredictedClasses& classes) : names_(schema.class_names) {
    for (int64_t i = std::ssize(names_); i < schema.classes; ++i) names_.push_back(std::to_string(i));
    top_ = std::min<size_t>(names_.size(), static_cast<size_t>(classes.top));
    columns_ = columns();
  }

  std::string encode(const Tensor& output, const Batch&) override {
    require(output.rank() == 2 && output.dim(1) == std::ssize(names_), ExitCode::kConfig, "the task's output is ",
            output, ": of ", names_.size(), " classes it must give each a number a sample, [samples, ", names_.size(),
            "]");
    return float_bytes(probabilities_of(output));
  }
  size_t bytes() const override { return names_.size() * sizeof(float); }

  std::vector<std::string> names() const override { return columns_; }
  JsonObject told(std::string_view sample) const override {
    const std::vector<float> p = floats_in(sample);
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto before = [&](size_t a, size_t b) { return p[a] != p[b] ? p[a] > p[b] : a < b; };
    const size_t first = std::max<size_t>(1, top_);
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first), order.end(), before);
    JsonObject out;
    for (size_t i = 0; i < first; ++i) {
      out.emplace_back(columns_[out.size()], names_[order[i]]);
      if (top_ > 0) out.emplace_back(columns_[out.size()], told_number(p[order[i]]));
    }
    for (size_t i = 0; top_ == 0 && i < p.size(); ++i) out.emplace_back(columns_[out.size()], told_number(p[i]));
    return out;
  }
  Shape array_shape() const override { return {std::ssize(names_)}; }

 private:
  std::vector<std::string> columns() const {
    std::vector<std::string> out{"prediction"};
    if (top_ > 0) out.emplace_back("probability");
    for (size_t i = 2; i <= top_; ++i) out.push_back(str("prediction_", i)), out.push_back(str("probability_", i));
    for (size_t i = 0; top_ == 0 && i < names_.size(); ++i) out.push_back("probability:" + names_[i]);
    return out;
  }

  std::vector<std::string> names_, columns_;
  size_t top_;
};

class Numbers final : public PredictedValues {
 public:
  explicit Numbers(const DataSchema& schema) : mean_(schema.target_mean), std_(schema.target_std) {}

  std::string encode(const Tensor& output, const Batch&) override {
    require(output.rank() >= 1 && output.numel() == output.dim(0), ExitCode::kConfig, "the task's output is ", output,
            ": of a regression it must give one number a sample");
    return float_bytes(floats_of(output));
  }
  size_t bytes() const override { return sizeof(float); }

  std::vector<std::string> names() const override { return {"prediction"}; }
  JsonObject told(std::string_view sample) const override {
    const double value = in_its_unit(sample);
    return {{"prediction", told_number(value)}};
  }
  std::string array_type() const override { return "f8"; }
  Shape array_shape() const override { return {}; }
  std::string elements(std::string_view sample) const override {
    const double value = in_its_unit(sample);
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }

 private:
  double in_its_unit(std::string_view sample) const { return mean_ + std_ * floats_in(sample)[0]; }

  double mean_, std_;
};

// Of texts: the sum of the natural logarithms of the probabilities that the model gave each token but the first, and
// how many these are.
class LogProbabilities final : public PredictedValues {
 public:
  std::string encode(const Tensor& output, const Batch& batch) override {
    const Tensor& labels = batch[kLabels];
    require(output.rank() == 3 && output.dim(1) == labels.dim(1), ExitCode::kConfig, "the task's output is ", output,
            ": of texts it must give each token numbers, [samples, tokens, vocabulary]");
    std::string out;
    for (int64_t i = 0; i < output.dim(0); ++i) {  // sample by sample, so that none depends on the others
      const std::vector<double> targets = slice(labels, 0, i, i + 1).to_vector();
      const auto count = std::ssize(targets) - std::count(targets.begin(), targets.end(), kIgnoreIndex);
      const Part part{-cross_entropy(slice(output, 0, i, i + 1), slice(labels, 0, i, i + 1)).item(), count};
      out.append(reinterpret_cast<const char*>(&part), sizeof part);
    }
    return out;
  }
  size_t bytes() const override { return sizeof(Part); }
  std::string joined(std::string_view parts) const override {
    Part sum{0, 0};
    for (size_t at = 0; at < parts.size(); at += sizeof(Part)) {
      const Part part = part_in(parts.substr(at));
      sum.log_probability += part.log_probability, sum.tokens += part.tokens;
    }
    return {reinterpret_cast<const char*>(&sum), sizeof sum};
  }

  std::vector<std::string> names() const override { return {"log_probability", "tokens"}; }
  JsonObject told(std::string_view sample) const override {
    const Part part = part_in(sample);
    return {{"log_probability", told_number(part.log_probability)}, {"tokens", part.tokens}};
  }
  std::string array_type() const override { return "f8"; }
  Shape array_shape() const override { return {}; }
  std::string elements(std::string_view sample) const override {
    const double value = part_in(sample).log_probability;
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }

 private:
  struct Part {
    double log_probability;
    int64_t tokens;
  };
  static Part part_in(std::string_view bytes) {
    Part out;
    std::memcpy(&out, bytes.data(), sizeof out);
    return out;
  }
};

// The most probable class of each pixel, the lowest of equal ones.
class Masks final : public PredictedValues {
 public:
  Masks(const DataSchema& schema, const Shape& input, std::vector<std::array<uint8_t, 3>> colours)
      : height_(input[0]), width_(input[1]), classes_(schema.classes), colours_(std::move(colours)) {
    require(colours_.empty() || std::ssize(colours_) == classes_, ExitCode::kUsage, "--palette: has ", colours_.size(),
            " classes, but the run has ", classes_);
    for (int64_t i = std::ssize(colours_); i < classes_; ++i) colours_.push_back(colour_of(static_cast<uint8_t>(i)));
  }

  std::string encode(const Tensor& output, const Batch&) override {
    require(output.rank() == 4 && output.dim(1) == height_ && output.dim(2) == width_ && output.dim(3) == classes_,
            ExitCode::kConfig, "the task's output is ", output, ": of masks it must be [samples, ", height_, ", ",
            width_, ", ", classes_, "]");
    const std::vector<float> values = floats_of(output);
    std::string out;
    for (auto pixel = values.begin(); pixel != values.end(); pixel += classes_)
      out.push_back(static_cast<char>(std::max_element(pixel, pixel + classes_) - pixel));
    return out;
  }
  size_t bytes() const override { return static_cast<size_t>(height_ * width_); }

  std::vector<std::string> names() const override { return {}; }
  JsonObject told(std::string_view) const override { return {}; }
  bool is_picture() const override { return true; }
  std::string png(std::string_view sample) const override {
    return encode_png({height_, width_, 1, {sample.begin(), sample.end()}}, colours_);
  }
  std::string array_type() const override { return "u1"; }
  Shape array_shape() const override { return {height_, width_}; }

 private:
  int64_t height_, width_, classes_;
  std::vector<std::array<uint8_t, 3>> colours_;
};

}  // namespace

JsonValue told_number(double value) {
  return std::isfinite(value) ? JsonValue(JsonText{str(value)}) : JsonValue(nullptr);
}

JsonValue told_number(float value) {
  if (!std::isfinite(value)) return nullptr;
  char text[64];
  return JsonText{{text, std::to_chars(text, text + sizeof text, value).ptr}};
}

std::unique_ptr<PredictedValues> predicted_values(const DataSchema& schema, const Shape& input,
                                                  const PredictedClasses& classes) {
  require(classes.colours.empty() || schema.target == TargetKind::kMasks, ExitCode::kUsage,
          "--palette: is for masks, which the run does not predict");
  if (schema.target == TargetKind::kMasks) return std::make_unique<Masks>(schema, input, classes.colours);
  if (schema.target == TargetKind::kNumbers) return std::make_unique<Numbers>(schema);
  if (schema.kind == DataKind::kTokens && schema.classes == 0) return std::make_unique<LogProbabilities>();
  require(schema.target == TargetKind::kLabels && schema.classes > 0, ExitCode::kUsage,
          "the run predicts neither classes nor numbers");
  return std::make_unique<ClassProbabilities>(schema, classes);
}

}  // namespace lockstep
