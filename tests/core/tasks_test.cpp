// Tasks: which one data and model are of, what they read and refuse, their losses and metrics.
#include "core/tasks/task.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/autograd/node.h"
#include "core/base/ignore_index.h"
#include "core/models/gan.h"
#include "core/models/gpt.h"
#include "core/models/lstm.h"
#include "core/models/mlp.h"
#include "core/models/unet.h"
#include "core/ops/ops.h"
#include "tests/support/files.h"

namespace lockstep::tasks_test {
namespace {

using test::expect_error;

template <class M, class Options>
std::unique_ptr<M> placed(const Options& options, const TaskSpec& data) {
  auto model = std::make_unique<M>(options, data);
  place_parameters(*model, 1);
  return model;
}

std::unique_ptr<Task> task(const std::string& name, std::unique_ptr<Model> model, TaskContext context = {}) {
  if (context.model_name.empty()) context.model_name = "this";
  return make_choice(builtin_tasks(), name)->build(std::move(model), context);
}

Batch batch_of(const std::string& name, Tensor values, Tensor labels) {
  Batch out;
  out.add(name, std::move(values));
  out.add(std::string(kLabels), std::move(labels));
  return out;
}

TaskSpec with_labels(TaskSpec spec, const Shape& labels) {
  spec.tensors = {{"x", DType::kFloat32, spec.input}, {std::string(kLabels), DType::kInt32, labels}};
  return spec;
}

std::vector<std::string> metrics_of(const Task& task) {
  std::vector<std::string> out;
  for (const Metric& m : chosen_metrics(task.metrics(), {}, "")) out.push_back(m.name);
  return out;
}

using Names = std::vector<std::string>;

TEST(AutoTask, IsWhatTheTargetsAreOf) {
  const auto of = [](std::unique_ptr<Model> model, const TaskSpec& data) {
    return metrics_of(*task("auto", std::move(model), {.data = data}));
  };
  const TaskSpec points = with_labels({{3}, 4}, {}), text{{4}, 8}, image{{8, 8, 1}, 3};
  EXPECT_EQ(of(placed<Mlp>(MlpOptions{}, points), points), (Names{"accuracy", "balanced_accuracy"}));
  EXPECT_EQ(of(placed<Unet>(UnetOptions{.levels = 1, .width = 2}, image), image), (Names{"accuracy", "iou"}));
  EXPECT_EQ(of(placed<LstmLm>(RecurrentLmOptions{}, text), text), (Names{"accuracy"}));
  TaskSpec numbers{.input = {3}, .classes = 1, .regression = true};
  EXPECT_EQ(of(placed<Mlp>(MlpOptions{}, numbers), numbers), (Names{"rmse"}));
  const TaskSpec digits{{8, 8, 1}, 3};
  const auto gan = task("auto", placed<Gan>(GanOptions{.latent = 2, .width = 2}, digits), {.data = digits});
  ASSERT_EQ(gan->phases().size(), 2u);
  EXPECT_EQ(gan->phases()[0].module, "discriminator");
  EXPECT_EQ(gan->phases()[1].module, "generator");
}

TEST(LabelTasks, TheLossIsASumOverCountedTargets) {
  const auto classify = task("classify", placed<Mlp>(MlpOptions{.hidden = {5}}, TaskSpec{{3}, 4}));
  const Tensor x = Tensor::full({3, 3}, 0.5);
  const auto loss = [&](const std::vector<int32_t>& labels) {
    return classify->loss(batch_of("x", x, Tensor::of(labels, {3})), 0).item();
  };
  const double one = loss({2, kIgnoreIndex, kIgnoreIndex});
  EXPECT_GT(one, 0);
  EXPECT_NEAR(loss({2, 2, kIgnoreIndex}), 2 * one, 1e-6);
  EXPECT_EQ(loss({kIgnoreIndex, kIgnoreIndex, kIgnoreIndex}), 0);
}

TEST(LabelTasks, SmoothLabelsInTrainingOnly) {
  const Tensor logits = Tensor::of(std::vector<float>{1, 2, 3, 4, 5, 5, 4, 3, 2, 1}, {2, 5});
  const Batch batch = batch_of("x", Tensor::full({2, 3}, 1), Tensor::of(std::vector<int32_t>{4, kIgnoreIndex}, {2}));
  const auto made = [&](double smoothing) {
    return task("classify", placed<Mlp>(MlpOptions{.hidden = {4}}, TaskSpec{{3}, 5}), {.label_smoothing = smoothing});
  };
  const double plain = made(0)->loss_of(logits, batch).item();
  EXPECT_EQ(plain, cross_entropy(logits, batch[kLabels]).item());
  const auto smooth = made(0.2);
  EXPECT_EQ(smooth->loss_of(logits, batch).item(), cross_entropy(logits, batch[kLabels], kIgnoreIndex, 0.2).item());
  EXPECT_NEAR(smooth->loss_of(logits, batch).item(), plain + 0.2 * (5 - 3), 1e-5)
      << "the logits' mean in place of a fifth";
  smooth->module().eval();
  EXPECT_EQ(smooth->loss_of(logits, batch).item(), plain);
}

TEST(LabelTasks, WeighClassesInTrainingOnly) {
  const Tensor logits = Tensor::of<float>({0.5f, -1, 2, 1, 0, -0.25f, 3, 1, 2}, {3, 3});
  const Batch batch = batch_of("x", Tensor::full({3, 2}, 1), Tensor::of<int32_t>({2, 0, kIgnoreIndex}, {3}));
  for (const double smoothing : {0.0, 0.2}) {
    const auto of = [&](int64_t row, int32_t label) {
      return cross_entropy(logits.slice(0, row, row + 1), Tensor::of<int32_t>({label}, {1}), kIgnoreIndex, smoothing)
          .item();
    };
    const auto weighted = task("classify", placed<Mlp>(MlpOptions{.hidden = {}}, TaskSpec{{2}, 3}),
                               {.label_smoothing = smoothing, .class_weights = {3, 1, 0.5}});
    EXPECT_NEAR(weighted->loss_of(logits, batch).item(), 0.5 * of(0, 2) + 3 * of(1, 0), 1e-6);
    weighted->module().eval();
    EXPECT_EQ(weighted->loss_of(logits, batch).item(), cross_entropy(logits, batch[kLabels]).item());
  }
}

// The loss of a row of logits with label smoothing, in fp64.
double smoothed_loss(const std::vector<double>& row, size_t label, double smoothing) {
  double sum = 0, mean = 0;
  for (double x : row) sum += std::exp(x), mean += x / static_cast<double>(row.size());
  return std::log(sum) - (1 - smoothing) * row[label] - smoothing * mean;
}

TEST(SampleWeights, MultiplyTheLossOfEachSampleBesideThatOfItsClass) {
  const std::vector<std::vector<double>> rows = {{0.5, -1, 2}, {1, 0, -0.25}, {3, 1, 2}, {0, 0.5, 1}};
  const Tensor logits = Tensor::of<float>({0.5f, -1, 2, 1, 0, -0.25f, 3, 1, 2, 0, 0.5f, 1}, {4, 3});
  const std::vector<int32_t> labels = {2, 0, kIgnoreIndex, 1};
  const std::vector<float> weights = {0.5f, 2.25f, 7, 0};
  const std::vector<double> of_classes = {3, 1, 0.5};
  Batch batch = batch_of("x", Tensor::full({4, 2}, 1), Tensor::of(labels, {4}));
  batch.add(std::string(kSampleWeights), Tensor::of(weights, {4}));
  const auto expected = [&](double smoothing, bool with_classes) {
    double out = 0;
    for (size_t i : {0, 1, 3}) {
      const auto label = static_cast<size_t>(labels[i]);
      out += weights[i] * (with_classes ? of_classes[label] : 1) * smoothed_loss(rows[i], label, smoothing);
    }
    return out;
  };
  for (const double smoothing : {0.0, 0.2})
    for (const bool with_classes : {false, true}) {
      const auto classify =
          task("classify", placed<Mlp>(MlpOptions{.hidden = {}}, TaskSpec{{2}, 3}),
               {.label_smoothing = smoothing, .class_weights = with_classes ? of_classes : std::vector<double>()});
      EXPECT_TRUE(classify->weighs_samples());
      EXPECT_NEAR(classify->loss_of(logits, batch).item(), expected(smoothing, with_classes), 1e-6);
      classify->module().eval();
      EXPECT_NEAR(classify->loss_of(logits, batch).item(), expected(0, false), 1e-6) << "they stay in evaluations";
    }
  // Weights of 1 change nothing, and 2 is as having the sample twice.
  const auto plain = task("classify", placed<Mlp>(MlpOptions{.hidden = {}}, TaskSpec{{2}, 3}));
  const auto loss = [&](const std::vector<int32_t>& of, const Tensor& output, const std::vector<float>& by) {
    Batch b = batch_of("x", Tensor::full({output.dim(0), 2}, 1), Tensor::of(of, {output.dim(0)}));
    if (!by.empty()) b.add(std::string(kSampleWeights), Tensor::of(by, {output.dim(0)}));
    return plain->loss_of(output, b).item();
  };
  EXPECT_EQ(loss(labels, logits, {1, 1, 1, 1}), loss(labels, logits, {}));
  const Tensor two = logits.slice(0, 0, 2), twice = concat({two, two.slice(0, 1, 2)}, 0);
  EXPECT_NEAR(loss({2, 0}, two, {1, 2}), loss({2, 0, 0}, twice, {}), 1e-6);
  const auto unet = task("segment", placed<Unet>(UnetOptions{.levels = 1, .width = 2}, TaskSpec{{8, 8, 1}, 3}));
  EXPECT_FALSE(unet->weighs_samples());
}

TEST(SampleWeights, MultiplyTheDistancesOfARegression) {
  const TaskSpec data{.input = {1}, .classes = 1, .regression = true};
  const std::vector<double> output = {1, 2, 3, -2}, targets = {0.5, -1, 4, -2.25}, weights = {0.5, 3, 0, 2};
  const auto column = [](const std::vector<double>& values) {
    return Tensor::of(std::vector<float>(values.begin(), values.end()), {std::ssize(values)});
  };
  for (const double delta : {0.0, 0.75}) {
    const auto regress =
        task("regress", placed<Mlp>(MlpOptions{.hidden = {}}, data), {.data = data, .huber_delta = delta});
    EXPECT_TRUE(regress->weighs_samples());
    double expected = 0;
    for (size_t i = 0; i < output.size(); ++i) {
      const double d = std::abs(output[i] - targets[i]);
      expected += weights[i] * (delta == 0 ? d * d : d <= delta ? d * d / 2 : delta * (d - delta / 2));
    }
    // The loss, and its gradient by the output.
    const auto learnt = [&](const std::vector<double>& by) {
      Tensor x = column(output);
      require_grad(x);
      Batch batch;
      batch.add(std::string(kTargets), column(targets));
      if (!by.empty()) batch.add(std::string(kSampleWeights), column(by));
      const Tensor loss = regress->loss_of(x, batch);
      backward(loss);
      return std::pair(loss.item(), grad_of(x).to_vector());
    };
    EXPECT_NEAR(learnt(weights).first, expected, 1e-6);
    EXPECT_EQ(learnt({1, 1, 1, 1}), learnt({})) << "the same bits";
  }
}

TEST(LabelTasks, OfMixturesTheLossIsOfBothLabelsByTheirShares) {
  const Tensor output = Tensor::of<float>({0.5f, -1, 2, 1, 0, -0.25f}, {2, 3});
  Batch batch = batch_of("x", Tensor::full({2, 2}, 1), Tensor::of<int32_t>({2, 0}, {2}));
  batch.add("other_labels", Tensor::of<int32_t>({1, 0}, {2}));
  batch.add("other_share", Tensor::of<int32_t>({kShareUnit / 4, kShareUnit / 2}, {2}));
  for (const double smoothing : {0.0, 0.2}) {
    const auto of = [&](int64_t row, int32_t label) {
      return cross_entropy(output.slice(0, row, row + 1), Tensor::of<int32_t>({label}, {1}), kIgnoreIndex, smoothing)
          .item();
    };
    const auto classify =
        task("classify", placed<Mlp>(MlpOptions{.hidden = {}}, TaskSpec{{2}, 3}), {.label_smoothing = smoothing});
    EXPECT_NEAR(classify->loss_of(output, batch).item(), 0.75 * of(0, 2) + 0.25 * of(0, 1) + of(1, 0), 1e-6);
  }
}

TEST(Regress, ComparesNumbersWithTargets) {
  const TaskSpec data{.input = {1}, .classes = 1, .regression = true, .target_std = 2};
  const auto made = [&](double huber) {
    return task("regress", placed<Mlp>(MlpOptions{.hidden = {}}, data), {.data = data, .huber_delta = huber});
  };
  const auto squares = made(0);
  EXPECT_EQ(squares->reads()[1].name, "targets");
  Batch batch;
  batch.add("features", Tensor::of<float>({1, 2, 3}, {3, 1}));
  batch.add("targets", Tensor::of<float>({0.5f, -1, 4}, {3}));
  const Tensor output = Tensor::of<float>({1, 2, 3}, {3, 1});
  EXPECT_EQ(squares->loss_of(output, batch).item(), 0.25 + 9 + 1);
  EXPECT_EQ(made(1)->loss_of(output, batch).item(), 0.125 + 2.5 + 0.5);
  const MetricSum distance = squares->metrics()[0].sum(output, batch);
  EXPECT_EQ(distance.sum, 4 * 10.25);
  EXPECT_EQ(distance.count, 3);
  EXPECT_EQ(accuracy().sum(output, batch).count, 0);
  expect_error(ExitCode::kConfig, {"one number for each"}, [&] {
    squares->loss_of(Tensor::of<float>({1, 2}, {2, 1}), batch);
  });
}

// As wide as its vocabulary, so that features would pass for logits.
TEST(Language, TheLossByPartsIsTheLoss) {
  const GptOptions options{.layers = 2, .heads = 2, .width = 8};
  const TaskSpec text{{4}, 8};
  const auto tokens = [](std::vector<int32_t> v) { return Tensor::of(v, {1, 4}); };
  const Batch batch = batch_of("tokens", tokens({1, 2, 3, 4}), tokens({2, 3, 4, 5}));
  const auto whole = task("language", placed<Gpt>(options, text));
  const auto parts = task("language", placed<Gpt>(options, text), {.loss_rows = 64});
  EXPECT_EQ(parts->loss(batch, 0).item(), whole->loss(batch, 0).item());
  EXPECT_EQ(parts->output(batch).shape(), (Shape{1, 4, 8}));
  EXPECT_EQ(parts->loss_of(parts->output(batch), batch).item(), whole->loss(batch, 0).item());
  const auto gradients = [&](Task& t) {
    std::vector<std::vector<double>> out;
    for (const NamedParameter& p : t.module().parameters()) require_grad(p.parameter->value);
    backward(t.loss(batch, 0));
    for (const NamedParameter& p : t.module().parameters()) out.push_back(grad_of(p.parameter->value).to_vector());
    return out;
  };
  EXPECT_EQ(gradients(*parts), gradients(*whole));
}

TEST(Tasks, RefuseWhatTheyHaveNoUseForNamingTheKey) {
  const TaskSpec points = with_labels({{3}, 4}, {}), numbers{.input = {3}, .classes = 1, .regression = true};
  const auto key = [](const std::string& name, std::unique_ptr<Model> model, const TaskContext& context) {
    return task(name, std::move(model), context)->problem(context.data).first;
  };
  EXPECT_EQ(key("classify", placed<Mlp>(MlpOptions{}, points), {.data = points}), "");
  EXPECT_EQ(key("classify", placed<Mlp>(MlpOptions{}, points), {.data = points, .huber_delta = 1}),
            "train.huber_delta");
  EXPECT_EQ(key("classify", placed<Mlp>(MlpOptions{}, points), {.data = points, .loss_rows = 64}), "train.loss_rows");
  EXPECT_EQ(key("regress", placed<Mlp>(MlpOptions{}, numbers), {.data = numbers, .label_smoothing = 0.1}),
            "train.label_smoothing");
  EXPECT_EQ(key("regress", placed<Mlp>(MlpOptions{}, numbers), {.data = numbers, .class_weights = {1}}),
            "train.class_weights");
  EXPECT_EQ(key("classify", placed<Mlp>(MlpOptions{}, points), {.data = points, .class_weights = {1, 2, 3, 4}}), "");
  TaskSpec text{{4}, 8};
  text.next_tokens = true;
  EXPECT_EQ(key("language", placed<Gpt>(GptOptions{.layers = 1, .heads = 2, .width = 8}, text),
                {.data = text, .class_weights = std::vector<double>(8, 1)}),
            "train.class_weights");
  EXPECT_EQ(key("language", placed<Gpt>(GptOptions{.layers = 1, .heads = 2, .width = 8}, text),
                {.data = text, .loss_rows = 64}),
            "");
  EXPECT_EQ(key("language", placed<LstmLm>(RecurrentLmOptions{}, text), {.data = text, .loss_rows = 64}),
            "train.loss_rows");
  expect_error(ExitCode::kConfig, {"task.name", "gan", "not this"},
               [&] { task("gan", placed<Mlp>(MlpOptions{}, points)); });
}

// The mean of the distances to all others: the gradient by each output depends on all.
class Spread : public GlobalBatchTask {
 public:
  explicit Spread(std::unique_ptr<Model> model) : model_(std::move(model)) {}
  Module& module() override { return *model_; }
  std::vector<TensorNeed> reads() const override { return {{}}; }
  Tensor output(const Batch& batch) override { return model_->output_of(batch); }
  Tensor losses(const Tensor& outputs) override {
    const Tensor products = matmul(outputs, transpose(outputs, 0, 1));
    return reshape(sum(products * products, {1}), {outputs.dim(0)});
  }

 private:
  std::unique_ptr<Model> model_;
};

TEST(GlobalBatchTask, OfOneBatchTheLossIsTheSumOfAll) {
  Spread spread(placed<Mlp>(MlpOptions{.hidden = {}}, TaskSpec{{2}, 2}));
  Batch batch;
  batch.add("x", Tensor::of<float>({1, 2, 3, 4, 5, 6}, {3, 2}));
  const Tensor output = spread.output(batch);
  double wanted = 0;
  for (double v : spread.losses(output).to_vector()) wanted += v;
  EXPECT_GT(wanted, 0);
  EXPECT_NEAR(spread.loss(batch, 0).item(), wanted, 1e-5 * wanted);
}

}  // namespace
}  // namespace lockstep::tasks_test
