#include "core/metrics/metric.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/error.h"
#include "core/base/ignore_index.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

bool is_classification(const Tensor& output, const Tensor& labels) {
  return output.defined() && output.rank() > 0 && is_floating(output.dtype()) && labels.dtype() == DType::kInt32 &&
         output.is_contiguous() && output.numel() == labels.numel() * output.dim(-1) && output.dim(-1) >= 2;
}

bool for_each_prediction(const Tensor& output, const Tensor& labels,
                         const std::function<void(int64_t, int64_t)>& visit) {
  if (!is_classification(output, labels)) return false;
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

std::vector<ClassCount> by_class(const Confusion& confusion) {
  std::vector<ClassCount> out(static_cast<size_t>(confusion.classes));
  for (const auto& [pair, count] : confusion.counts) {
    const auto [label, predicted] = pair;
    if (label >= static_cast<int64_t>(out.size())) out.resize(static_cast<size_t>(label) + 1);
    out[static_cast<size_t>(label)].labels += count;
    out[static_cast<size_t>(predicted)].predicted += count;
    if (label == predicted) out[static_cast<size_t>(label)].right += count;
  }
  return out;
}

std::string one_class_warning(const Confusion& confusion) {
  const std::vector<ClassCount> counts = by_class(confusion);
  int64_t labelled = 0, predicted = 0, last = 0, all = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    labelled += counts[i].labels > 0;
    if (counts[i].predicted > 0) ++predicted, last = static_cast<int64_t>(i);
    all += counts[i].predicted;
  }
  if (predicted != 1 || labelled < 2) return "";
  const ClassCount& only = counts[static_cast<size_t>(last)];
  return str("all ", all, " predictions are class ", last, ", though the labels are of ", labelled,
             " classes: the accuracy is that class's share of the labels, ", only.right, " of ", all);
}

const Metric* find_metric(const std::vector<Metric>& all, const std::string& name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Metric& m) { return m.name == name; });
  return found == all.end() ? nullptr : &*found;
}

Metric metric_named(const std::vector<Metric>& all, const std::string& name) {
  const Metric* found = find_metric(all, name);
  check(found != nullptr, "there is no metric ", name);
  return *found;
}

std::vector<Metric> chosen_metrics(const std::vector<Metric>& all, const std::vector<std::string>& names,
                                   const std::string& place) {
  std::vector<Metric> out;
  for (const std::string& name : names) {
    const Metric* found = find_metric(all, name);
    std::string there;
    for (const Metric& m : all) there += str(there.empty() ? "" : ", ", m.name);
    require(found != nullptr, ExitCode::kConfig, place, ": there is no metric '", name,
            there.empty() ? str("': this task has none") : str("' here; there are ", there));
    out.push_back(*found);
  }
  if (names.empty())
    std::copy_if(all.begin(), all.end(), std::back_inserter(out), [](const Metric& m) { return !m.on_request; });
  return out;
}

Metric accuracy() {
  return {.name = "accuracy", .sum = [](const Tensor& output, const Batch& batch) {
            const Tensor* labels = batch.find(kLabels);
            return labels ? count_correct(output, *labels) : MetricSum{};
          }};
}

std::vector<Metric> number_metrics(double unit) {
  // visit(found, wanted, index) for each number; returns how many: 0 where there are no targets, one for each number.
  const auto each = [unit](const Tensor& output, const Batch& batch, const auto& visit) {
    const Tensor* targets = batch.find(kExactTargets);
    if (!targets) targets = batch.find(kTargets);
    if (!targets || !is_floating(output.dtype()) || output.numel() != targets->numel()) return int64_t{0};
    const std::vector<double> found = output.detach().to_vector(), wanted = targets->to_vector();
    for (size_t i = 0; i < found.size(); ++i) visit(found[i] * unit, wanted[i] * unit, i);
    return static_cast<int64_t>(found.size());
  };
  const Metric rmse{.name = "rmse",
                    .sum =
                        [each](const Tensor& output, const Batch& batch) {
                          MetricSum out;
                          out.count = each(output, batch, [&](double found, double wanted, size_t) {
                            out.sum += (found - wanted) * (found - wanted);
                          });
                          return out;
                        },
                    .root = true,
                    .lower_is_better = true};
  const Metric mae{.name = "mae",
                   .sum =
                       [each](const Tensor& output, const Batch& batch) {
                         MetricSum out;
                         out.count = each(output, batch, [&](double found, double wanted, size_t) {
                           out.sum += std::abs(found - wanted);
                         });
                         return out;
                       },
                   .lower_is_better = true,
                   .on_request = true};
  const Metric r2{.name = "r2",
                  .rows =
                      [each](const Tensor& output, const Batch& batch, int64_t first) {
                        std::vector<MetricRow> out;
                        each(output, batch, [&](double found, double wanted, size_t i) {
                          out.push_back({wanted, first + static_cast<int64_t>(i), found});
                        });
                        return out;
                      },
                  .of_rows = [](const std::vector<MetricRow>& sorted) -> std::optional<double> {
                    double sum = 0, squares = 0, around = 0;  // of distances from the first, which keep their bits
                    for (const MetricRow& r : sorted) sum += r.score - sorted.front().score;
                    const double mean = sorted.front().score + sum / static_cast<double>(sorted.size());
                    for (const MetricRow& r : sorted) {
                      squares += (r.score - r.outcome) * (r.score - r.outcome);
                      around += (r.score - mean) * (r.score - mean);
                    }
                    if (around == 0) return {};
                    return 1 - squares / around;
                  },
                  .on_request = true};
  return {rmse, mae, r2};
}

namespace {

// The loss to base 2 of each of what count() counts of a batch.
Metric bits_per(std::string name, std::function<int64_t(const Batch&)> count) {
  return {.name = std::move(name),
          .sum =
              [count = std::move(count)](const Tensor&, const Batch& batch) {
                return MetricSum{0, count(batch)};
              },
          .of_loss = true,
          .scale = 1 / std::numbers::ln2,
          .lower_is_better = true,
          .on_request = true};
}

// The sum of of(token before the label, label) over the labels that count.
int64_t sum_of_next_tokens(const Batch& batch, const std::function<int64_t(int32_t, int32_t)>& of) {
  const Tensor *tokens = batch.find("tokens"), *labels = batch.find(kLabels);
  if (!tokens || !labels) return 0;
  check(tokens->shape() == labels->shape(), "next tokens ", *labels, " of tokens ", *tokens);
  const Tensor there = raw::to_host(*tokens), next = raw::to_host(*labels);
  const auto *token = there.values<int32_t>(), *label = next.values<int32_t>();
  int64_t out = 0;
  for (int64_t i = 0; i < next.numel(); ++i)
    if (label[i] != kIgnoreIndex) out += of(token[i], label[i]);
  return out;
}

int64_t count_labels(const Batch& batch) {
  const Tensor* labels = batch.find(kLabels);
  if (!labels) return 0;
  const Tensor values = raw::to_host(*labels);
  const auto* label = values.values<int32_t>();
  return std::count_if(label, label + values.numel(), [](int32_t l) { return l != kIgnoreIndex; });
}

}  // namespace

std::vector<Metric> token_metrics() { return {accuracy(), bits_per("bits_per_token", count_labels)}; }

std::vector<Metric> text_metrics(const std::shared_ptr<TokenTexts>& texts) {
  const auto bytes = [texts](int32_t, int32_t label) { return texts->bytes(label); };
  const auto words = [texts](int32_t before, int32_t label) { return texts->words(before, label); };
  return {bits_per("bits_per_byte", [bytes](const Batch& batch) { return sum_of_next_tokens(batch, bytes); }),
          bits_per("bits_per_word", [words](const Batch& batch) { return sum_of_next_tokens(batch, words); })};
}

}  // namespace lockstep
