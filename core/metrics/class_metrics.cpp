// Metrics of classes: of one label a sample, and of masks.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>

#include "core/base/error.h"
#include "core/base/ignore_index.h"
#include "core/metrics/metric.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

const Tensor* labels_of_samples(const Tensor& output, const Batch& batch) {
  const Tensor* labels = batch.find(kLabels);
  return labels && labels->rank() == 1 && output.defined() && output.rank() == 2 ? labels : nullptr;
}

const Tensor* labels_of_pixels(const Batch& batch) {
  const Tensor* labels = batch.find(kLabels);
  return labels && labels->rank() >= 3 ? labels : nullptr;
}

void count_pairs(const Tensor& output, const Tensor& labels, Confusion& confusion) {
  const int64_t classes = output.dim(-1);
  const bool counted = for_each_prediction(output, labels, [&](int64_t predicted, int64_t label) {
    ++confusion.counts[{label < 0 || label >= classes ? classes : label, predicted}];
  });
  if (counted) confusion.classes = std::max(confusion.classes, classes);
}

void count_samples(const Tensor& output, const Batch& batch, Confusion& confusion) {
  if (const Tensor* labels = labels_of_samples(output, batch)) count_pairs(output, *labels, confusion);
}

void count_pixels(const Tensor& output, const Batch& batch, Confusion& confusion) {
  if (const Tensor* labels = labels_of_pixels(batch)) count_pairs(output, *labels, confusion);
}

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}
double precision(const ClassCount& c) { return ratio(c.right, c.predicted); }
double recall(const ClassCount& c) { return ratio(c.right, c.labels); }
double f1(const ClassCount& c) { return ratio(2 * c.right, c.labels + c.predicted); }  // of pixels it is called dice
double overlap(const ClassCount& c) { return ratio(c.right, c.labels + c.predicted - c.right); }

using OfClass = double (*)(const ClassCount&);

bool occurs(const ClassCount& c) { return c.labels > 0 || c.predicted > 0; }

// The mean over the classes that occur or are predicted.
Metric mean_over_classes(std::string name, CountPredictions* count, OfClass of) {
  return {.name = name,
          .count = count,
          .of_counts =
              [name, of](const Confusion& confusion) {
                double sum = 0;
                int64_t classes = 0;
                for (const ClassCount& c : by_class(confusion))
                  if (occurs(c)) sum += of(c), ++classes;
                return Figures{{name, sum / static_cast<double>(classes)}};
              },
          .on_request = true};
}

// "f1_of_classes": a figure f1/C for each class that occurs or is predicted.
Metric of_each_class(const std::string& name, CountPredictions* count, OfClass of) {
  return {.name = name + "_of_classes",
          .count = count,
          .of_counts =
              [name, of](const Confusion& confusion) {
                Figures out;
                const std::vector<ClassCount> counts = by_class(confusion);
                for (size_t i = 0; i < counts.size(); ++i)
                  if (occurs(counts[i])) out.emplace_back(str(name, "/", i), of(counts[i]));
                return out;
              },
          .on_request = true,
          .has_value = false};
}

// Figures of its own it has none: the counts are what an evaluation reports.
Metric confusion(CountPredictions* count) {
  return {.name = "confusion",
          .count = count,
          .of_counts = [](const Confusion&) { return Figures{}; },
          .on_request = true,
          .has_value = false};
}

Metric balanced_accuracy() {
  return {.name = "balanced_accuracy", .count = count_samples, .of_counts = [](const Confusion& confusion) {
            double recalls = 0;
            int64_t classes = 0;
            for (const ClassCount& c : by_class(confusion))
              if (c.labels > 0) recalls += recall(c), ++classes;
            return Figures{{"balanced_accuracy", recalls / static_cast<double>(classes)}};
          }};
}

// visit(logits, label, row) for each sample with a label that is not ignored.
template <class Visit>
void for_each_row(const Tensor& output, const Batch& batch, const Visit& visit) {
  const Tensor* labels = labels_of_samples(output, batch);
  if (!labels || !is_classification(output, *labels)) return;
  const Tensor logits = raw::to_host(raw::cast(output.detach(), DType::kFloat32)), wanted = raw::to_host(*labels);
  const int64_t classes = output.dim(-1);
  for (int64_t i = 0; i < wanted.numel(); ++i)
    if (const int32_t label = wanted.values<int32_t>()[i]; label != kIgnoreIndex)
      visit(std::span<const float>(logits.values<float>() + i * classes, static_cast<size_t>(classes)), label, i);
}

std::vector<double> probabilities(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> out;
  for (float v : logits) out.push_back(std::exp(static_cast<double>(v) - largest));
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& p : out) p /= sum;
  return out;
}

// The probability of each class, and whether it is the label's. Of two classes the second one is enough.
std::vector<MetricRow> class_scores(const Tensor& output, const Batch& batch, int64_t first) {
  std::vector<MetricRow> out;
  for_each_row(output, batch, [&](std::span<const float> logits, int32_t label, int64_t row) {
    const std::vector<double> p = probabilities(logits);
    for (size_t c = p.size() == 2 ? 1 : 0; c < p.size(); ++c)
      out.push_back({p[c], first + row, label == static_cast<int32_t>(c) ? 1.0 : 0.0, static_cast<int64_t>(c)});
  });
  return out;
}

// Positives and negatives of one score, which no threshold can part.
struct Tie {
  double positives = 0, negatives = 0;
};

std::map<int64_t, std::vector<Tie>> ties_by_class(const std::vector<MetricRow>& sorted) {
  std::map<int64_t, std::vector<Tie>> out;
  std::map<int64_t, double> last;
  for (const MetricRow& r : sorted) {
    std::vector<Tie>& ties = out[r.group];
    if (ties.empty() || last[r.group] != r.score) ties.emplace_back();
    last[r.group] = r.score;
    (r.outcome > 0 ? ties.back().positives : ties.back().negatives) += 1;
  }
  return out;
}

// The mean over the classes for which `of` gives a value.
std::optional<double> mean_of_classes(const std::vector<MetricRow>& sorted,
                                      std::optional<double> (*of)(const std::vector<Tie>&)) {
  double sum = 0;
  int64_t classes = 0;
  for (const auto& [_, ties] : ties_by_class(sorted))
    if (const auto value = of(ties)) sum += *value, ++classes;
  if (classes == 0) return {};
  return sum / static_cast<double>(classes);
}

// The part of the pairs of a positive and a negative in which the positive has the higher score; of equal ones half.
std::optional<double> area_under_curve(const std::vector<Tie>& ascending) {
  double pairs = 0, positives = 0, below = 0;
  for (const Tie& t : ascending) {
    pairs += t.positives * (below + t.negatives / 2);
    positives += t.positives;
    below += t.negatives;
  }
  if (positives == 0 || below == 0) return {};
  return pairs / (positives * below);
}

// The sum over thresholds of precision times the recall that is gained.
std::optional<double> area_under_precision(const std::vector<Tie>& ascending) {
  double all = 0, right = 0, predicted = 0, sum = 0;
  for (const Tie& t : ascending) all += t.positives;
  if (all == 0) return {};
  for (auto t = ascending.rbegin(); t != ascending.rend(); ++t) {
    right += t->positives;
    predicted += t->positives + t->negatives;
    sum += t->positives / all * (right / predicted);
  }
  return sum;
}

Metric calibration_error() {
  constexpr size_t kBins = 15;
  return {.name = "calibration_error",
          .rows =
              [](const Tensor& output, const Batch& batch, int64_t first) {
                std::vector<MetricRow> out;
                for_each_row(output, batch, [&](std::span<const float> logits, int32_t label, int64_t row) {
                  const std::vector<double> p = probabilities(logits);
                  const auto best = std::max_element(p.begin(), p.end());
                  out.push_back({*best, first + row, best - p.begin() == label ? 1.0 : 0.0});
                });
                return out;
              },
          .of_rows = [](const std::vector<MetricRow>& sorted) -> std::optional<double> {
            if (sorted.empty()) return {};
            std::array<double, kBins> confidence{}, right{};
            for (const MetricRow& r : sorted) {
              const double bin = std::ceil(r.score * static_cast<double>(kBins)) - 1;
              const size_t b = std::min(kBins - 1, static_cast<size_t>(std::max(0.0, bin)));
              confidence[b] += r.score;
              right[b] += r.outcome;
            }
            double sum = 0;
            for (size_t b = 0; b < kBins; ++b) sum += std::abs(confidence[b] - right[b]);
            return sum / static_cast<double>(sorted.size());
          },
          .lower_is_better = true,
          .on_request = true};
}

Metric among_top(int64_t k) {
  return {.name = str("top_", k),
          .sum =
              [k](const Tensor& output, const Batch& batch) {
                MetricSum out;
                for_each_row(output, batch, [&](std::span<const float> logits, int32_t label, int64_t) {
                  ++out.count;
                  if (label < 0 || label >= static_cast<int32_t>(logits.size())) return;
                  const float own = logits[static_cast<size_t>(label)];
                  int64_t before = 0;
                  for (size_t c = 0; c < logits.size(); ++c)
                    before += logits[c] > own || (logits[c] == own && static_cast<int32_t>(c) < label);
                  out.sum += before < k;
                });
                return out;
              },
          .on_request = true};
}

}  // namespace

std::vector<Metric> class_metrics() {
  std::vector<Metric> out{accuracy(), balanced_accuracy()};
  for (const auto& [name, of] :
       {std::pair<const char*, OfClass>{"precision", precision}, {"recall", recall}, {"f1", f1}})
    out.insert(out.end(), {mean_over_classes(name, count_samples, of), of_each_class(name, count_samples, of)});
  out.push_back(among_top(5));
  out.push_back({.name = "auc",
                 .rows = class_scores,
                 .of_rows = [](const auto& sorted) { return mean_of_classes(sorted, area_under_curve); },
                 .on_request = true});
  out.push_back({.name = "average_precision",
                 .rows = class_scores,
                 .of_rows = [](const auto& sorted) { return mean_of_classes(sorted, area_under_precision); },
                 .on_request = true});
  out.push_back(calibration_error());
  out.push_back(confusion(count_samples));
  return out;
}

std::vector<Metric> mask_metrics() {
  const Metric foreground{.name = "iou", .sum = [](const Tensor& output, const Batch& batch) {
                            const Tensor* labels = labels_of_pixels(batch);
                            if (!labels) return MetricSum{};
                            MetricSum out;
                            int64_t both = 0;
                            for_each_prediction(output, *labels, [&](int64_t predicted, int64_t label) {
                              both += predicted == label && label != 0;
                              out.count += predicted != 0 || label != 0;
                            });
                            out.sum = static_cast<double>(both);
                            return out;
                          }};
  return {accuracy(),
          foreground,
          mean_over_classes("mean_iou", count_pixels, overlap),
          mean_over_classes("dice", count_pixels, f1),
          of_each_class("iou", count_pixels, overlap),
          of_each_class("dice", count_pixels, f1),
          confusion(count_pixels)};
}

}  // namespace lockstep
