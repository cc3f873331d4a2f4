// Metrics against scikit-learn 1.5 and later: the numbers in this file are what its functions of the names beside them
// gave for the same data, with zero_division=0. Ties, classes that never occur, and classes that are never predicted
// are among it.
#include "core/metrics/metric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/base/ignore_index.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/files.h"

namespace lockstep::metrics_test {
namespace {

// Logits of 17 values and labels of the first `present` classes, by formulas that any language can repeat.
Batch labels_of(int64_t n, int64_t present, std::vector<float>& logits, int64_t classes) {
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t c = 0; c < classes; ++c)
      logits.push_back(static_cast<float>((i * 37 + c * 101 + (i * i * (c + 1)) % 29) % 17 - 8) / 4);
    labels.push_back(static_cast<int32_t>((i * 7 + i / 3) % present));
  }
  Batch out;
  out.add("labels", Tensor::of(labels, {n}));
  return out;
}

// The figures of a metric over data that comes in two batches.
Figures measured(const Metric& metric, const std::vector<std::pair<Tensor, Batch>>& batches) {
  MetricSum total;
  Confusion confusion;
  std::vector<MetricRow> rows;
  int64_t first = 0;
  for (const auto& [output, batch] : batches) {
    if (metric.sum) {
      const MetricSum part = metric.sum(output, batch);
      total.sum += part.sum, total.count += part.count;
    }
    if (metric.count) metric.count(output, batch, confusion);
    if (metric.rows)
      for (const MetricRow& r : metric.rows(output, batch, first)) rows.push_back(r);
    first += batch.tensors()[0].second.dim(0);
  }
  std::sort(rows.begin(), rows.end());
  if (metric.count) return confusion.counts.empty() ? Figures{} : metric.of_counts(confusion);
  if (metric.rows) {
    const auto value = metric.of_rows(rows);
    return value ? Figures{{metric.name, *value}} : Figures{};
  }
  if (total.count == 0) return {};
  const double value = total.sum / static_cast<double>(total.count) * metric.scale;
  return {{metric.name, metric.root ? std::sqrt(value) : value}};
}

Figures of_classes(const std::string& name, int64_t n, int64_t classes, int64_t present) {
  std::vector<float> logits;
  const Batch all = labels_of(n, present, logits, classes);
  const Tensor output = Tensor::of(logits, {n, classes});
  const int64_t half = n / 2;
  const auto part = [&](int64_t begin, int64_t end) {
    Batch out;
    out.add("labels", raw::contiguous(all["labels"].slice(0, begin, end)));
    return std::pair(raw::contiguous(output.slice(0, begin, end)), out);
  };
  return measured(metric_named(class_metrics(), name), {part(0, half), part(half, n)});
}

void expect_figures(const Figures& found, const Figures& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(found[i].first, wanted[i].first);
    EXPECT_NEAR(found[i].second, wanted[i].second, 1e-12) << wanted[i].first;
  }
}
void expect_value(const std::string& name, int64_t n, int64_t classes, int64_t present, double wanted) {
  expect_figures(of_classes(name, n, classes, present), {{name, wanted}});
}

TEST(ClassMetrics, AreThoseOfScikitLearnWhereAClassNeverOccurs) {
  expect_value("accuracy", 40, 4, 3, 0.125);                         // accuracy_score
  expect_value("balanced_accuracy", 40, 4, 3, 0.12454212454212454);  // balanced_accuracy_score
  expect_value("precision", 40, 4, 3, 0.15416666666666667);          // precision_score(average='macro')
  expect_value("recall", 40, 4, 3, 0.09340659340659341);             // recall_score(average='macro')
  expect_value("f1", 40, 4, 3, 0.11429824561403508);                 // f1_score(average='macro')
  expect_value("auc", 40, 4, 3, 0.38498846832180167);                // roc_auc_score of each class, their mean
  expect_value("average_precision", 40, 4, 3, 0.318412833185268);    // average_precision_score, likewise
  expect_value("calibration_error", 40, 4, 3, 0.4696948408038348);
  expect_figures(of_classes("precision_of_classes", 40, 4, 3), {{"precision/0", 0.08333333333333333},
                                                                {"precision/1", 0.2},
                                                                {"precision/2", 0.3333333333333333},
                                                                {"precision/3", 0}});
  expect_figures(of_classes("recall_of_classes", 40, 4, 3), {{"recall/0", 0.07692307692307693},
                                                             {"recall/1", 0.14285714285714285},
                                                             {"recall/2", 0.15384615384615385},
                                                             {"recall/3", 0}});
  expect_figures(of_classes("f1_of_classes", 40, 4, 3),
                 {{"f1/0", 0.08}, {"f1/1", 0.16666666666666666}, {"f1/2", 0.21052631578947367}, {"f1/3", 0}});
}

TEST(ClassMetrics, AreThoseOfScikitLearnForTwoClasses) {
  expect_value("accuracy", 30, 2, 2, 0.5333333333333333);
  expect_value("precision", 30, 2, 2, 0.5446428571428572);
  expect_value("f1", 30, 2, 2, 0.5248868778280543);
  expect_value("auc", 30, 2, 2, 0.625);  // roc_auc_score(y, p[:, 1])
  expect_value("average_precision", 30, 2, 2, 0.4723412698412699);
  expect_value("calibration_error", 30, 2, 2, 0.3230578192415103);
}

TEST(ClassMetrics, AreThoseOfScikitLearnForSevenClasses) {
  expect_value("accuracy", 50, 7, 7, 0.12);
  expect_value("f1", 50, 7, 7, 0.10225563909774436);
  expect_value("auc", 50, 7, 7, 0.41610307278861275);  // roc_auc_score(multi_class='ovr')
  expect_value("average_precision", 50, 7, 7, 0.15548954314852184);
  expect_value("calibration_error", 50, 7, 7, 0.2795871585440506);
}

TEST(ClassMetrics, OfOneClassThereIsNoCurve) {
  EXPECT_TRUE(of_classes("auc", 12, 2, 1).empty());
  expect_value("f1", 12, 2, 1, of_classes("f1", 12, 2, 1)[0].second);
}

TEST(ClassMetrics, TopFiveTakesTheFirstOfEqualValues) {
  const Metric top = metric_named(class_metrics(), "top_5");
  const auto among = [&](int32_t label) {
    Batch batch;
    batch.add("labels", Tensor::of(std::vector<int32_t>{label}, {1}));
    return top.sum(Tensor::of<float>({9, 1, 2, 3, 3, 2, 2}, {1, 7}), batch).sum;
  };
  EXPECT_EQ(among(0), 1);
  EXPECT_EQ(among(1), 0) << "the least";
  EXPECT_EQ(among(2), 1) << "fourth";
  EXPECT_EQ(among(5), 1) << "fifth";
  EXPECT_EQ(among(6), 0) << "as large as the fifth";
  EXPECT_EQ(among(7), 0) << "beyond the classes";
}

TEST(MaskMetrics, AreThoseOfScikitLearn) {
  std::vector<float> logits;
  const Batch flat = labels_of(40, 3, logits, 4);
  Batch batch;
  batch.add("labels", flat["labels"].reshape({2, 4, 5}));
  const std::vector<std::pair<Tensor, Batch>> all{{Tensor::of(logits, {2, 4, 5, 4}), batch}};
  const auto value = [&](const char* name) { return measured(metric_named(mask_metrics(), name), all); };
  expect_figures(value("mean_iou"), {{"mean_iou", 0.06255570409982175}});  // jaccard_score(average='macro')
  expect_figures(value("dice"), {{"dice", 0.11429824561403508}});          // f1_score(average='macro')
  EXPECT_EQ(value("iou_of_classes").size(), 4u);
  EXPECT_EQ(value("iou_of_classes")[0].first, "iou/0");
  EXPECT_NEAR(value("iou_of_classes")[0].second, 0.08 / (2 - 0.08), 1e-12) << "f1 / (2 - f1)";
}

TEST(NumberMetrics, AreThoseOfScikitLearnInTheDatasUnit) {
  std::vector<float> wanted, found;
  for (int i = 0; i < 25; ++i) {
    wanted.push_back(static_cast<float>((i * 13) % 19 - 9) / 3);
    found.push_back(wanted.back() + static_cast<float>((i * 5) % 7 - 3) / 10);
  }
  Batch batch;
  batch.add("targets", Tensor::of(wanted, {25}));
  const std::vector<std::pair<Tensor, Batch>> all{{Tensor::of(found, {25, 1}), batch}};
  const auto value = [&](const char* name) { return measured(metric_named(number_metrics(2.5), name), all)[0].second; };
  EXPECT_NEAR(value("rmse"), 0.5024937810560446, 1e-6);  // root of mean_squared_error
  EXPECT_NEAR(value("mae"), 0.43, 1e-6);                 // mean_absolute_error
  EXPECT_NEAR(value("r2"), 0.9879787346593314, 1e-6);    // r2_score
}

// Ten million deviations from the run's mean fp32 holds integers alone: what is measured are the numbers of the data.
// Values by rational arithmetic.
TEST(NumberMetrics, OfNumbersFarFromTheMeanAreThoseOfTheirExactValues) {
  std::vector<double> wanted;
  std::vector<float> far, near;
  for (int i = 0; i < 25; ++i) {
    wanted.push_back(1e7 + ((i * 13) % 19 - 9) / 8.0);
    far.push_back(static_cast<float>((i * 5) % 7 - 3) / 4);
    near.push_back(static_cast<float>(1e7 + (i * 5) % 7 - 3));
  }
  Batch batch;
  batch.add("targets", Tensor::of(std::vector<float>(wanted.begin(), wanted.end()), {25}));
  batch.add(std::string(kExactTargets), Tensor::of(wanted, {25}));
  const auto value = [&](const char* name, const std::vector<float>& found) {
    const std::vector<std::pair<Tensor, Batch>> all{{Tensor::of(found, {25, 1}), batch}};
    return measured(metric_named(number_metrics(2.5), name), all)[0].second;
  };
  EXPECT_NEAR(value("r2", far) / -211595428480745.47, 1, 1e-12) << "of the fp32 it is 9% less";
  EXPECT_NEAR(value("r2", near), -8.978046974185357, 1e-12) << "of the fp32 it is -7.95";
  EXPECT_NEAR(value("rmse", near), 5.428872465807242, 1e-12);
  EXPECT_NEAR(value("mae", near), 4.8625, 1e-12);
}

TEST(Metrics, AreChosenByName) {
  const auto names = [](const std::vector<Metric>& metrics) {
    std::vector<std::string> out;
    for (const Metric& m : metrics) out.push_back(m.name);
    return out;
  };
  EXPECT_EQ(names(chosen_metrics(class_metrics(), {}, "")),
            (std::vector<std::string>{"accuracy", "balanced_accuracy"}));
  EXPECT_EQ(names(chosen_metrics(class_metrics(), {"f1", "auc"}, "")), (std::vector<std::string>{"f1", "auc"}));
  test::expect_error(ExitCode::kConfig, {"run.yaml:3", "'f2'", "accuracy, balanced_accuracy"},
                     [] { chosen_metrics(class_metrics(), {"f2"}, "run.yaml:3: train.metrics"); });
}

TEST(Metrics, CountsAreByLabelAndPrediction) {
  const Metric metric = metric_named(class_metrics(), "balanced_accuracy");
  const auto add = [&](const std::vector<int32_t>& predicted, const std::vector<int32_t>& labels, int64_t classes,
                       Confusion& counts) {
    const auto rows = static_cast<int64_t>(labels.size());
    std::vector<float> output(static_cast<size_t>(rows * classes));
    for (size_t i = 0; i < labels.size(); ++i)
      output[i * static_cast<size_t>(classes) + static_cast<size_t>(predicted[i])] = 1;
    Batch batch;
    batch.add("labels", Tensor::of(labels, {rows}));
    metric.count(Tensor::of(output, {rows, classes}), batch, counts);
  };
  Confusion counts;
  add({0, 1, 0, 0}, {0, 1, 0, 0}, 4, counts);
  add({1, 0, 3, 2, 3}, {0, 1, 3, 3, kIgnoreIndex}, 4, counts);
  EXPECT_EQ(by_class(counts), (std::vector<ClassCount>{{4, 3, 4}, {2, 1, 2}, {0, 0, 1}, {2, 1, 1}}));
  // Recalls 3/4, 1/2 and 1/2; no label is of class 2.
  EXPECT_EQ(metric.of_counts(counts)[0].second, (0.75 + 0.5 + 0.5) / 3);
  EXPECT_EQ(one_class_warning(counts), "");
  // A classifier that never says yes.
  Confusion never;
  add({0, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 0, 0}, 2, never);
  EXPECT_EQ(metric.of_counts(never)[0].second, 0.5);
  EXPECT_EQ(one_class_warning(never),
            "all 6 predictions are class 0, though the labels are of 2 classes: the accuracy is that class's share of "
            "the labels, 5 of 6");
  Confusion one;
  add({1, 1}, {1, 1}, 2, one);
  EXPECT_EQ(one_class_warning(one), "") << "the labels have one class, too";
}

TEST(Metrics, OfTokensAndMasksHaveNoCountsByClassOfSamples) {
  const Metric metric = metric_named(class_metrics(), "balanced_accuracy");
  for (const Shape& shape : {Shape{2, 3}, Shape{1, 2, 3}}) {
    Batch batch;
    batch.add("labels", Tensor::of(std::vector<int32_t>(6), shape));
    Confusion counts;
    metric.count(Tensor::full({6, 5}, 0.5), batch, counts);
    EXPECT_TRUE(counts.counts.empty());
  }
}

TEST(Metrics, OneNumberIsNoPredictionOfAClass) {
  // Numbers that a model of one's own compares with integer labels: the largest of one number is always the first.
  Batch batch;
  batch.add("labels", Tensor::of(std::vector<int32_t>{0, 1, 0}, {3}));
  const Tensor output = Tensor::of<float>({-2, 3, 0.5f}, {3, 1});
  for (const Metric& metric : class_metrics()) EXPECT_TRUE(measured(metric, {{output, batch}}).empty()) << metric.name;
  EXPECT_EQ(count_correct(output, batch["labels"]).count, 0);
}

TEST(Metrics, CountCorrectPassesOverIgnoredRows) {
  const Tensor y = Tensor::of(std::vector<float>{1, 3, 2, 9, 0, 1, 0, 0, 5}, {3, 3});
  EXPECT_EQ(count_correct(y, Tensor::of(std::vector<int32_t>{1, 0, 0}, {3})).sum, 2);
  EXPECT_EQ(count_correct(y, Tensor::of(std::vector<int32_t>{1, kIgnoreIndex, 2}, {3})).sum, 2);
  EXPECT_EQ(count_correct(y, Tensor::of(std::vector<int32_t>{1}, {1})).count, 0) << "no classification";
  for (DType dtype : {DType::kBFloat16, DType::kFloat16})
    EXPECT_EQ(count_correct(raw::cast(y, dtype), Tensor::of(std::vector<int32_t>{1, kIgnoreIndex, 2}, {3})).sum, 2);
}

// Of "caf\xC3\xA9 ab" and more; byte tokens, a special token (no text), white space of its own and within a token.
TEST(TokenMetrics, BytesAndWordsOfTheLabelsThatCount) {
  const std::vector<std::string> text{"caf", "\xC3", "\xA9", " ab", "", " ", "c", "\n d\te", "f "};
  const auto texts = std::make_shared<TokenTexts>(static_cast<int64_t>(text.size()),
                                                  [&](int32_t id) { return text[static_cast<size_t>(id)]; });
  const auto counts = [&](const std::vector<int32_t>& tokens, const std::vector<int32_t>& labels) {
    Batch batch;
    batch.add("tokens", Tensor::of(tokens, {static_cast<int64_t>(tokens.size())}));
    batch.add("labels", Tensor::of(labels, {static_cast<int64_t>(labels.size())}));
    std::vector<int64_t> out;
    for (const Metric& metric : text_metrics(texts)) out.push_back(metric.sum({}, batch).count);
    return out;
  };
  using Counts = std::vector<int64_t>;
  // "caf" is no label; its word is counted where its first byte is.
  EXPECT_EQ(counts({0, 1, 2}, {1, 2, 3}), (Counts{5, 1}));
  EXPECT_EQ(counts({4, 0, 1}, {0, 1, 2}), (Counts{5, 1})) << "behind a token that is no text a text begins";
  EXPECT_EQ(counts({3, 4}, {4, 6}), (Counts{1, 1})) << "of a token that is no text nothing is counted";
  EXPECT_EQ(counts({3, 5}, {5, 6}), (Counts{2, 1}));
  EXPECT_EQ(counts({3}, {6}), (Counts{1, 0})) << "abc is one word";
  EXPECT_EQ(counts({6, 7, 8, 0}, {7, 8, 0, kIgnoreIndex}), (Counts{5 + 2 + 3, 2 + 0 + 1}));
  EXPECT_EQ(counts({6}, {kIgnoreIndex}), (Counts{0, 0}));
  for (const Metric& metric : text_metrics(texts)) {
    EXPECT_TRUE(metric.of_loss && metric.on_request && metric.lower_is_better) << metric.name;
    EXPECT_DOUBLE_EQ(metric.scale * std::log(2.0), 1) << metric.name;
  }
  test::expect_error(ExitCode::kInternal, {"token 9 of a vocabulary of 9"}, [&] { texts->bytes(9); });
}

}  // namespace
}  // namespace lockstep::metrics_test
