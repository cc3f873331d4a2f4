// Metrics: what an evaluation measures beside the loss. Each is a quotient of sums over micro-batches, a figure of a
// table with a few rows for each sample, or one of counts by class. In each case the same bits at every number of
// ranks. Plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor/batch.h"

namespace lockstep {

// Added in the order of the micro-batches; the metric is sum / count, and is left out where count is 0.
struct MetricSum {
  double sum = 0;
  int64_t count = 0;
};

struct MetricRow {
  double score = 0;
  int64_t sample = 0;  // its index in the data
  double outcome = 0;
  friend auto operator<=>(const MetricRow&, const MetricRow&) = default;
};

// Of one class: labels, those among them that were predicted, and predictions of it.
struct ClassCount {
  int64_t labels = 0, right = 0, predicted = 0;
  friend bool operator==(const ClassCount&, const ClassCount&) = default;
};
using ClassCounts = std::vector<ClassCount>;  // by class

struct Metric {
  std::string name;  // "accuracy": of the keys val_NAME of metrics.jsonl and NAME of `lockstep eval`
  // One of the three kinds is set. `output`: what Model::output_of() gave.
  std::function<MetricSum(const Tensor& output, const Batch& batch)> sum = {};
  bool root = false;  // the metric is the square root of that quotient
  // `first`: the first row's index in the data.
  std::function<std::vector<MetricRow>(const Tensor& output, const Batch& batch, int64_t first)> rows = {};
  // Of all ranks' rows, sorted by score, then sample.
  std::function<double(const std::vector<MetricRow>& sorted)> of_rows = {};
  // Adds a micro-batch to the counts, which may have to grow; leaves them alone where it does not apply.
  std::function<void(const Tensor& output, const Batch& batch, ClassCounts& counts)> count = {};
  // Of the sums of all ranks' counts; nothing: it is left out.
  std::function<std::optional<double>(const ClassCounts& counts)> of_counts = {};
  bool of_labels = false;  // it compares predicted classes with labels: a regression does not have it
};

// How many rows of an output [..., classes] have their largest value at the label, and of how many labels that are not
// ignored; 0 of 0 where shapes or types are no classification, or there is one class.
MetricSum count_correct(const Tensor& output, const Tensor& labels);
// The part of the labels (ignored ones left out) at which an output [..., classes] has its largest value; left out
// where shapes or types are no classification.
Metric accuracy();
// The mean of each class's recall, the part of its labels that is predicted, over the classes that occur: 1 / their
// number for a model that always says the same. Of data with one label a sample, [B]; left out for tokens and masks.
Metric balanced_accuracy();
// In words, where all predictions are one class though the labels have several; else empty.
std::string one_class_warning(const ClassCounts& counts);
// The root of the mean squared distance between the numbers of an output and "targets", times `unit`: what one of the
// batch's is in that of the data. Left out where there are no targets, one for each number.
Metric rmse(double unit);
// Of labels in two dimensions or more, [B, H, W], 0 being the background: where output and label agree on another
// class, as a part of where either has one (intersection over union); left out for other labels.
Metric iou();

}  // namespace lockstep
