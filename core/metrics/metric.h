// Metrics: what an evaluation measures beside the loss. Each is a quotient of sums over micro-batches, a figure of a
// table with a few rows for each sample, or figures of a confusion matrix. In each case the same bits at every number
// of ranks. Plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/metrics/token_texts.h"
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
  int64_t group = 0;  // such as a class, where several tables are kept as one
  friend auto operator<=>(const MetricRow&, const MetricRow&) = default;
};

// How often a label was predicted as a class: counts by (label, predicted). Labels beyond the output's classes are one
// more class, which is never predicted.
struct Confusion {
  int64_t classes = 0;  // of the output
  std::map<std::pair<int64_t, int64_t>, int64_t> counts = {};
  friend bool operator==(const Confusion&, const Confusion&) = default;
};

// Of one class: labels, those among them that were predicted, and predictions of it.
struct ClassCount {
  int64_t labels = 0, right = 0, predicted = 0;
  friend bool operator==(const ClassCount&, const ClassCount&) = default;
};
std::vector<ClassCount> by_class(const Confusion& confusion);  // of the output's classes, then of labels beyond them

using Figures = std::vector<std::pair<std::string, double>>;  // by name

// fp64 on the host; in batches that are measured: the numbers that "targets" rounds to fp32, where the data knows them.
// They tell numbers apart that are far from the run's mean, by millions of deviations, and near to each other.
inline constexpr std::string_view kExactTargets = "exact_targets";

// Adds a micro-batch to the counts; leaves them alone where it does not apply.
using CountPredictions = void(const Tensor& output, const Batch& batch, Confusion& confusion);

struct Metric {
  std::string name;  // "accuracy": of the keys val_NAME of metrics.jsonl and NAME of `lockstep eval`
  // One of the three kinds is set. `output`: what Task::output() gave.
  std::function<MetricSum(const Tensor& output, const Batch& batch)> sum = {};
  bool root = false;     // the metric is the square root of that quotient
  bool of_loss = false;  // the loss takes the place of that sum
  double scale = 1;      // of that quotient
  // `first`: the first row's index in the data.
  std::function<std::vector<MetricRow>(const Tensor& output, const Batch& batch, int64_t first)> rows = {};
  // Of all ranks' rows, sorted by score, then sample; nothing: it is left out.
  std::function<std::optional<double>(const std::vector<MetricRow>& sorted)> of_rows = {};
  // Metrics that count by the same function share its counts.
  std::function<CountPredictions> count = {};
  // Of the sums of all ranks' counts, which are not empty. A figure's name follows the metric's: "f1" and, of a class,
  // "f1/3".
  std::function<Figures(const Confusion& confusion)> of_counts = {};
  bool lower_is_better = false;
  bool on_request = false;  // only where train.metrics names it
  bool has_value = true;    // false: its figures have other names, such as one a class, so nothing is ranked by it
};

// Whether these are an output [..., classes] and labels [...]. One number is no prediction of a class.
bool is_classification(const Tensor& output, const Tensor& labels);
// visit(predicted, label) for each label that is not ignored. False where this is no classification.
bool for_each_prediction(const Tensor& output, const Tensor& labels,
                         const std::function<void(int64_t, int64_t)>& visit);
// How many rows of an output [..., classes] have their largest value at the label, and of how many labels that are not
// ignored; 0 of 0 where shapes or types are no classification, or there is one class.
MetricSum count_correct(const Tensor& output, const Tensor& labels);
// In words, where all predictions are one class though the labels have several; else empty.
std::string one_class_warning(const Confusion& confusion);

const Metric* find_metric(const std::vector<Metric>& all, const std::string& name);  // null where it is not there
Metric metric_named(const std::vector<Metric>& all, const std::string& name);        // throws kInternal without it
// Those of `all` that `names` has, in its order; where that is empty, those that need no request. Throws
// ExitCode::kConfig for a name that is not there, with those that are; `place`: of the key that names them.
std::vector<Metric> chosen_metrics(const std::vector<Metric>& all, const std::vector<std::string>& names,
                                   const std::string& place);

// The part of the labels (ignored ones left out) at which an output [..., classes] has its largest value; left out
// where shapes or types are no classification.
Metric accuracy();
// Of outputs of classes and one label a sample, [B]: balanced_accuracy (the mean of each class's recall, the part of
// its labels that is predicted, over the classes that occur), and on request precision, recall and f1 (their means over
// the classes that occur or are predicted, macro; micro is accuracy), the same of each class, top_5, auc and
// average_precision (of two classes those of the second, of more the mean of each class against the others),
// calibration_error (Naeini et al. 2015, 15 bins of the largest probability).
std::vector<Metric> class_metrics();
// Of labels in two dimensions or more, [B, H, W], 0 being the background: iou (where output and label agree on another
// class, as a part of where either has one), and on request mean_iou, dice (both means over the classes that occur or
// are predicted), iou and dice of each class.
std::vector<Metric> mask_metrics();
// Of the numbers of an output and "targets" (or kExactTargets), in the data's unit, of which 1 is `unit`: rmse, and on
// request mae and r2.
std::vector<Metric> number_metrics(double unit);
// Of tokens, on request: perplexity's logarithm to base 2 as bits_per_token.
std::vector<Metric> token_metrics();
// Of next tokens, on request: bits_per_byte and bits_per_word, the sum of the losses to base 2 over the bytes, or the
// words, that the labels stand for. A batch has "tokens", each the one before its label.
std::vector<Metric> text_metrics(const std::shared_ptr<TokenTexts>& texts);

}  // namespace lockstep
