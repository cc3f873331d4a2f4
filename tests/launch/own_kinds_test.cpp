// A program's own schedule, optimizer, source of data and metrics, beside a model of several inputs: their options are
// keys, they train to the same bits at every number of ranks, and what does not fit is refused before the first step.
#include <gtest/gtest.h>

#include <cmath>

#include "core/nn/layers.h"
#include "core/ops/ops.h"
#include "core/tasks/model_task.h"
#include "launch/training/step/shared_data.h"
#include "launch/training/step/trainer.h"
#include "tests/support/run_ranks.h"

namespace lockstep::own_kinds_test {
namespace {

// Points of the plane with a weight each; the label says whether x > y.
class Points final : public Dataset {
 public:
  Points(int64_t size, bool of_samples) : size_(size) {
    spec_.tensors = {
        {"points", DType::kFloat32, {2}}, {"weights", DType::kFloat32, {}}, {std::string(kLabels), DType::kInt32, {}}};
    if (of_samples) spec_.tensors.push_back({std::string(kSampleWeights), DType::kFloat32, {}});
    spec_.classes = 2;
    spec_.unit = "points";
  }
  int64_t size() const override { return size_; }
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return hash128(str("points ", size_)); }
  const Vocabulary* vocabulary() const override { return nullptr; }
  void read(int64_t, int64_t index, SampleMemory sample) const override {
    auto* point = static_cast<float*>(sample[0]);
    point[0] = static_cast<float>(index * 37 % 101) / 101;
    point[1] = static_cast<float>(index * 53 % 103) / 103;
    *static_cast<float*>(sample[1]) = index % 2 == 0 ? 1.0f : 0.5f;
    *static_cast<int32_t*>(sample[2]) = point[0] > point[1];
    if (sample.size() > 3) *static_cast<float*>(sample[3]) = 1;
  }

 private:
  int64_t size_;
  DataSpec spec_;
};

class PointsSource final : public DataSource {
 public:
  std::vector<Field> options(DataOptions&) override {
    return {field("points", points_, "how many points").at_least(2),
            field("weigh", weigh_, "whether they have sample weights")};
  }
  Datasets open(const DataOptions&, uint64_t) const override {
    Datasets d;
    d.train = std::make_shared<Points>(points_, weigh_);
    d.validation = std::make_shared<Points>(points_ / 2, false);
    return d;
  }

 private:
  int64_t points_ = 64;
  bool weigh_ = false;
};

struct WeightedOptions {
  int64_t width = 8;
};
std::vector<Field> fields(WeightedOptions& o) { return {field("width", o.width, "hidden features").at_least(1)}; }

class Net : public Model {
 public:
  Net(const WeightedOptions& o, const TaskSpec& task)
      : in_(child<Linear>("in", task.input.numel(), o.width)), out_(child<Linear>("out", o.width, task.classes)) {}
  std::vector<TensorNeed> reads() const override { return {{"points", TensorNeed::Type::kFloating, 1}}; }
  ModelTraits traits() const override { return {.rank = 0}; }
  std::string task() const override { return "weighted"; }
  Tensor forward(const Tensor& x) override { return out_(relu(in_(x))); }

 private:
  Linear &in_, &out_;
};

// The loss of each point counts by its weight.
class Weighted : public LabelTask {
 public:
  using LabelTask::LabelTask;
  std::vector<TensorNeed> reads() const override {
    std::vector<TensorNeed> needs = LabelTask::reads();
    needs.push_back({"weights", TensorNeed::Type::kFloating, 0});
    return needs;
  }
  Tensor loss_of(Tensor output, const Batch& batch) override {
    const Tensor scaled = mul(output, reshape(batch["weights"], {batch["weights"].dim(0), 1}));
    return LabelTask::loss_of(scaled, batch);
  }
  std::vector<Metric> metrics() const override { return class_metrics(); }
};

class Halving final : public Schedule {
 public:
  std::vector<Field> options() override { return {field("after", after_, "steps until the rate is half").at_least(1)}; }
  double part(int64_t step, int64_t warmup, int64_t) const override {
    return std::exp2(-static_cast<double>((step - warmup) / after_));
  }

 private:
  int64_t after_ = 4;
};

class HeavyKind final : public OptimizerKind {
 public:
  std::vector<Field> options() override { return {field("mass", mass_, "momentum").with_range(0, kMostBeta)}; }
  std::pair<std::string, std::string> problem() const override {
    if (mass_ > 0) return {};
    return {"mass", "0 is plain sgd: use optim.name: sgd"};
  }
  std::unique_ptr<Optimizer> build(const OptimOptions& common, const std::vector<Slot>& slots) const override {
    return make_sgd({.lr = common.lr, .momentum = mass_, .weight_decay = common.weight_decay}, slots);
  }

 private:
  double mass_ = 0.9;
};

// The area under the curve of the second class's score against its label: the part of pairs that are in order.
Metric area_under_curve() {
  return {.name = "auc",
          .rows =
              [](const Tensor& output, const Batch& batch, int64_t first) {
                std::vector<MetricRow> rows;
                const auto scores = output.detach().to_vector(), labels = batch[kLabels].to_vector();
                for (size_t i = 0; i < labels.size(); ++i)
                  rows.push_back({scores[2 * i + 1] - scores[2 * i], first + static_cast<int64_t>(i), labels[i]});
                return rows;
              },
          .of_rows =
              [](const std::vector<MetricRow>& sorted) {
                double below = 0, pairs = 0, positives = 0;
                for (const MetricRow& r : sorted) {
                  if (r.outcome > 0) pairs += below, ++positives;
                  else ++below;
                }
                return pairs / (positives * below);
              }};
}

App own_app() {
  App app = builtin();
  app.models.push_back(model_choice<Net, WeightedOptions>("weighted"));
  app.tasks.push_back(task_choice<Weighted>("weighted"));
  app.optimizers.push_back(choice<OptimizerKind, HeavyKind>("heavy"));
  app.schedules.push_back(choice<Schedule, Halving>("halving"));
  app.data.push_back(choice<DataSource, PointsSource>("points"));
  app.metrics.push_back(area_under_curve());
  return app;
}

constexpr const char* kYaml =
    "model: {name: weighted, width: 12}\n"
    "data: {name: points, points: 50, threads: 0}\n"
    "optim: {name: heavy, mass: 0.8, lr: 0.5}\n"
    "schedule: {name: halving, after: 6}\n"
    "batch: {global: 8, micro: 2}\n"
    "train: {steps: 12}\n";

std::unique_ptr<Settings> settings_for(int ranks, const std::string& more = "") {
  ConfigTree tree = ConfigTree::parse(kYaml, "own.yaml");
  if (!more.empty()) tree.apply_override(more);
  return load_settings(own_app(), std::move(tree), ranks);
}

struct Result {
  std::vector<double> losses, rates;
  EvalReport eval;
};

Result train(int ranks) {
  const auto settings = settings_for(ranks);
  SharedData data(*settings);
  Result out;
  testing::run_ranks(ranks, [&](Communicator& comm) {
    Trainer trainer(*settings, data.open(comm), comm);
    for (int i = 0; i < 12; ++i) {
      const StepReport r = trainer.step();
      if (comm.rank() != 0) continue;
      out.losses.push_back(r.result.loss);
      out.rates.push_back(r.lr);
    }
    const EvalReport e = trainer.evaluate();
    if (comm.rank() == 0) out.eval = e;
  });
  return out;
}

TEST(OwnKinds, TrainToTheSameBitsAtEveryNumberOfRanks) {
  const Result one = train(1);
  EXPECT_LT(one.losses.back(), one.losses.front());
  EXPECT_EQ(one.rates[0], 0.5);
  EXPECT_EQ(one.rates[6], 0.25);
  ASSERT_EQ(one.eval.metrics.size(), 3u);
  EXPECT_EQ(one.eval.metrics[0].first, "accuracy");
  EXPECT_EQ(one.eval.metrics[1].first, "balanced_accuracy");
  EXPECT_EQ(one.eval.metrics[2].first, "auc");
  EXPECT_GT(one.eval.metrics[2].second, 0.7);
  EXPECT_LE(one.eval.metrics[2].second, 1);
  for (int ranks : {2, 3, 4}) {
    const Result several = train(ranks);
    EXPECT_EQ(several.losses, one.losses) << ranks << " ranks";
    EXPECT_EQ(several.eval.loss, one.eval.loss) << ranks << " ranks";
    EXPECT_EQ(several.eval.metrics, one.eval.metrics) << ranks << " ranks";
  }
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kConfig) << e.what();
    return e.what();
  }
  return "nothing was refused";
}

TEST(OwnKinds, RefuseWhatDoesNotFit) {
  const auto says = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(refusal([] { settings_for(1, "optim.name=adamw"); }), "has an effect only with optim.name: heavy");
  says(refusal([] { settings_for(1, "optim.mass=0"); }), "optim.mass: 0 is plain sgd");
  says(refusal([] { settings_for(1, "schedule.name=halvin"); }),
       "constant | linear | cosine | step | stable | inverse_root | restarts | one_cycle | halving");
  says(refusal([] { settings_for(1, "data.points=1"); }), "data.points");
  // A task that does not say that it weighs samples.
  const auto weighing = settings_for(1, "data.weigh=true");
  SharedData weighed(*weighing);
  testing::run_ranks(1, [&](Communicator& comm) {
    says(refusal([&] { Trainer(*weighing, weighed.open(comm), comm); }),
         "its samples have weights, of which the loss of weighted makes no use");
  });
  // A model that reads other tensors than the data has.
  ConfigTree tree = ConfigTree::parse(
      "model: {name: weighted}\ndata: {name: synthetic_images, threads: 0}\nbatch: {global: 4, micro: 4}\n",
      "own.yaml");
  const auto settings = load_settings(own_app(), std::move(tree), 1);
  SharedData data(*settings);
  testing::run_ranks(1, [&](Communicator& comm) {
    says(refusal([&] { Trainer(*settings, data.open(comm), comm); }),
         "own.yaml:1: model.name: weighted does not fit the data: it reads 'points', floating point, 1 dimension a "
         "sample, but the data gives 'images' (fp32 [28, 28, 1]), 'labels' (int32 [])");
  });
}

}  // namespace
}  // namespace lockstep::own_kinds_test
