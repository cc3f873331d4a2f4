#include "core/nn/metric.h"

#include <algorithm>
#include <functional>

#include "core/base/error.h"
#include "core/base/ignore_index.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

namespace {

// visit(predicted, label) for each label that is not ignored. False where shapes or types are no classification: the
// largest of one number is no prediction.
bool for_each_prediction(const Tensor& output, const Tensor& labels,
                         const std::function<void(int64_t, int64_t)>& visit) {
  if (output.rank() == 0 || !is_floating(output.dtype()) || labels.dtype() != DType::kInt32 ||
      !output.is_contiguous() || output.numel() != labels.numel() * output.dim(-1) || output.dim(-1) < 2)
    return false;
  const int64_t classes = output.dim(-1);
  const Tensor logits = raw::to_host(raw::cast(output.detach(), DType::kFloat32)), wanted = raw::to_host(labels);
  const float* values = logits.values<float>();
  const int32_t* label = wanted.values<int32_t>();
  for (int64_t i = 0; i < wanted.numel(); ++i) {
    if (label[i] == kIgnoreIndex) continue;
    const float* row = values + i * classes;
    visit(std::max_element(row, row + classes) - row, label[i]);
  }
  return true;
}

const Tensor* labels_of(const Batch& batch) {
  for (auto& [name, tensor] : batch.tensors())
    if (name == kLabels) return &tensor;
  return nullptr;
}

}  // namespace

MetricSum count_correct(const Tensor& output, const Tensor& labels) {
  MetricSum out;
  int64_t correct = 0;
  for_each_prediction(output, labels, [&](int64_t predicted, int64_t label) {
    correct += predicted == label;
    ++out.count;
  });
  out.sum = static_cast<double>(correct);
  return out;
}

Metric accuracy() {
  return {.name = "accuracy",
          .sum =
              [](const Tensor& output, const Batch& batch) {
                const Tensor* labels = labels_of(batch);
                return labels ? count_correct(output, *labels) : MetricSum{};
              },
          .of_labels = true};
}

Metric balanced_accuracy() {
  return {.name = "balanced_accuracy",
          .count =
              [](const Tensor& output, const Batch& batch, ClassCounts& counts) {
                const Tensor* labels = labels_of(batch);
                if (!labels || labels->rank() != 1 || output.rank() != 2) return;
                const int64_t classes = output.dim(-1);
                counts.resize(std::max(counts.size(), static_cast<size_t>(classes)));
                for_each_prediction(output, *labels, [&](int64_t predicted, int64_t label) {
                  // Labels beyond the output's classes are one more, which is never predicted.
                  const bool beyond = label < 0 || label >= classes;
                  if (beyond) counts.resize(std::max(counts.size(), static_cast<size_t>(classes) + 1));
                  ClassCount& of = counts[static_cast<size_t>(beyond ? classes : label)];
                  ++of.labels;
                  of.right += predicted == label;
                  ++counts[static_cast<size_t>(predicted)].predicted;
                });
              },
          .of_counts = [](const ClassCounts& counts) -> std::optional<double> {
            double recalls = 0;
            int64_t classes = 0;
            for (const ClassCount& c : counts) {
              if (c.labels == 0) continue;
              recalls += static_cast<double>(c.right) / static_cast<double>(c.labels);
              ++classes;
            }
            if (classes == 0) return {};
            return recalls / static_cast<double>(classes);
          },
          .of_labels = true};
}

std::string one_class_warning(const ClassCounts& counts) {
  int64_t labelled = 0, predicted = 0, last = 0, all = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    labelled += counts[i].labels > 0;
    if (counts[i].predicted > 0) ++predicted, last = static_cast<int64_t>(i);
    all += counts[i].predicted;
  }
  if (predicted != 1 || labelled < 2) return "";
  const ClassCount& only = counts[static_cast<size_t>(last)];
  return cat("all ", all, " predictions are class ", last, ", though the labels are of ", labelled,
             " classes: the accuracy is that class's share of the labels, ", only.right, " of ", all);
}

Metric rmse(double unit) {
  return {.name = "rmse",
          .sum =
              [unit](const Tensor& output, const Batch& batch) {
                const Tensor* targets = batch.find(kTargets);
                if (!targets || !is_floating(output.dtype()) || output.numel() != targets->numel()) return MetricSum{};
                const std::vector<double> found = output.detach().to_vector(), wanted = targets->to_vector();
                MetricSum out{0, static_cast<int64_t>(found.size())};
                for (size_t i = 0; i < found.size(); ++i)
                  out.sum += (found[i] - wanted[i]) * unit * ((found[i] - wanted[i]) * unit);
                return out;
              },
          .root = true};
}

Metric iou() {
  return {.name = "iou",
          .sum =
              [](const Tensor& output, const Batch& batch) {
                const Tensor* labels = labels_of(batch);
                if (!labels || labels->rank() < 3) return MetricSum{};  // a text's labels have one position
                MetricSum out;
                int64_t both = 0;
                for_each_prediction(output, *labels, [&](int64_t predicted, int64_t label) {
                  both += predicted == label && label != 0;
                  out.count += predicted != 0 || label != 0;
                });
                out.sum = static_cast<double>(both);
                return out;
              },
          .of_labels = true};
}

}  // namespace lockstep
