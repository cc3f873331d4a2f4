// Steps of several phases, weights that are used twice, and frozen ones: the same bits at every number of ranks and
// shard level, and what cannot be trained is refused before the first step.
#include <gtest/gtest.h>

#include <map>

#include "core/nn/layers.h"
#include "core/ops/ops.h"
#include "core/tasks/model_task.h"
#include "tests/support/trained_run.h"

namespace lockstep::phases_test {
namespace {

struct TwinsOptions {
  bool joined = false;  // one phase for both
};
std::vector<Field> fields(TwinsOptions& o) { return {field("joined", o.joined, "one phase for both networks")}; }

class Block : public ModuleOf<Tensor> {
 public:
  explicit Block(int64_t width) : in_(child<Linear>("in", width, width)), norm_(child<BatchNorm>("norm", width)) {}
  Tensor forward(const Tensor& x) override { return relu(norm_(in_(x))); }

 private:
  Linear& in_;
  BatchNorm& norm_;
};

// Two networks with the same task; the second one also learns from what the first one says. Each uses the block that it
// begins with twice.
class Twins : public Model {
 public:
  Twins(const TwinsOptions& o, const TaskSpec& task)
      : joined_(o.joined),
        width_(task.input.numel()),
        left_(child<Network>("left", width_, task.classes)),
        right_(child<Network>("right", width_, task.classes)) {}
  std::string task() const override { return "twins"; }
  ModelTraits traits() const override { return {.rank = 0}; }
  bool joined() const { return joined_; }
  Tensor forward(const Tensor& x) override {
    const Tensor flat = reshape(x, {x.dim(0), width_});
    const Tensor left = left_(flat);
    return joined_ || both_ ? left + right_(flat) : left;
  }
  void say_both(bool on) { both_ = on; }

 private:
  class Network : public ModuleOf<Tensor> {
   public:
    Network(int64_t width, int64_t classes)
        : block_(child<Block>("block", width)), head_(child<Linear>("head", width, classes)) {}
    Tensor forward(const Tensor& x) override { return head_(block_(block_(x))); }

   private:
    Block& block_;
    Linear& head_;
  };

  bool joined_, both_ = false;
  int64_t width_;
  Network &left_, &right_;
};

// The first phase is of what the left one says, and so are evaluations; the second one of what both say.
class TwinsTask : public LabelTask {
 public:
  using LabelTask::LabelTask;
  std::vector<StepPhase> phases() const override {
    return dynamic_cast<const Twins&>(model()).joined() ? std::vector<StepPhase>{{}}
                                                        : std::vector<StepPhase>{{"left"}, {"right"}};
  }
  Tensor loss(const Batch& batch, size_t phase) override {
    auto& twins = dynamic_cast<Twins&>(model());
    twins.say_both(phase == 1);
    const Tensor out = LabelTask::loss(batch, phase);
    twins.say_both(false);
    return out;
  }
};

std::unique_ptr<Settings> settings_for(int ranks, const std::vector<std::string>& more) {
  App app = builtin();
  app.models.push_back(model_choice<Twins, TwinsOptions>("twins"));
  app.tasks.push_back(task_choice<TwinsTask>("twins"));
  ConfigTree tree = ConfigTree::parse(
      "model: {name: twins}\n"
      "data: {name: synthetic_images, validation: 0.2, threads: 0, synthetic: {images: 60, height: 4, width: 4}}\n"
      "optim: {name: adamw, lr: 0.01, ema: 0.9}\n"
      "batch: {global: 12, micro: 3}\n"
      "comm: {bucket: 0.0001}\n"
      "train: {steps: 4}\n",
      "twins.yaml");
  for (const std::string& one : more) tree.apply_override(one);
  return load_settings(app, std::move(tree), ranks);
}

std::map<std::string, std::vector<double>> values_of(const Trainer& trainer) {
  std::map<std::string, std::vector<double>> out;
  for (const StateEntry& e : trainer.state()) out[e.name] = e.data.to_vector();
  return out;
}

struct Result : testing::TrainedRun {
  std::map<std::string, std::vector<double>> before, after;  // of rank 0, where it has all
};

Result train(int ranks, const std::vector<std::string>& more, int steps = 4) {
  Result out;
  const auto settings = settings_for(ranks, more);
  static_cast<testing::TrainedRun&>(out) = testing::train_run(
      *settings, ranks, steps,
      [&](const Trainer& trainer, int64_t step) { (step == 0 ? out.before : out.after) = values_of(trainer); });
  return out;
}

void expect_one_digest(const std::vector<std::string>& keys) {
  testing::expect_one_run([](int ranks, const auto& more) { return train(ranks, more); }, keys);
}

TEST(Phases, HaveTheSameBitsEverywhere) { expect_one_digest({}); }
TEST(Phases, HaveTheSameBitsEverywhereInBf16) { expect_one_digest({"precision.compute=bf16"}); }
TEST(Phases, HaveTheSameBitsWithUpdatesOfWholeMatrices) { expect_one_digest({"optim.name=muon"}); }
TEST(Phases, HaveTheSameBitsWithFrozenParts) {
  expect_one_digest({"optim.rules=[{pattern: '*.block.in.*', frozen: true}]"});
}
TEST(WeightsUsedTwice, HaveTheSameBitsEverywhere) { expect_one_digest({"model.joined=true"}); }
TEST(FrozenParts, HaveTheSameBitsEverywhere) {
  expect_one_digest({"model.joined=true", "optim.rules=[{pattern: 'left.*', frozen: true}]"});
}
TEST(Averages, AreMeasuredInTheParametersPlace) {
  expect_one_digest({"model.joined=true", "train.eval_ema=true", "optim.ema=0.5"});
  const double own = train(1, {"model.joined=true"}).validation;
  const double average = train(1, {"model.joined=true", "train.eval_ema=true"}).validation;
  EXPECT_NE(own, average);
  // The average of one update is the parameter.
  EXPECT_EQ(train(2, {"sharding.level=parameters"}, 1).validation,
            train(2, {"sharding.level=parameters", "train.eval_ema=true"}, 1).validation);
}

TEST(Phases, UpdateTheirOwnModuleAndAreReportedEach) {
  const Result r = train(1, {"optim.rules=[{pattern: 'right.*', lr_scale: 0}]"}, 1);
  ASSERT_EQ(r.reports[0].phases.size(), 2u);
  EXPECT_EQ(r.reports[0].phases[0].first, "left");
  EXPECT_EQ(r.reports[0].phases[1].first, "right");
  const StepResult &left = r.reports[0].phases[0].second, &right = r.reports[0].phases[1].second;
  EXPECT_EQ(r.reports[0].result.loss, left.loss + right.loss);
  EXPECT_GT(left.grad_norm, 0);
  EXPECT_GT(right.grad_norm, 0);
  for (const auto& [name, before] : r.before) {
    const std::vector<double>& after = r.after.at(name);
    if (name.starts_with("parameters/left.head")) {
      EXPECT_NE(before, after) << name;
    } else if (name.starts_with("parameters/right.")) {
      EXPECT_EQ(before, after) << name;
    }
  }
  // The second phase began from what the first had updated: alone it starts from another loss.
  const Result still = train(1, {"optim.rules=[{pattern: 'left.*', lr_scale: 0}]"}, 1);
  EXPECT_EQ(still.reports[0].phases[0].second.loss, left.loss);
  EXPECT_NE(still.reports[0].phases[1].second.loss, right.loss);
}

TEST(Phases, WithoutAParameterToTrainAreRefused) {
  const auto settings = settings_for(1, {"optim.rules=[{pattern: 'right.*', frozen: true}]"});
  SharedData data(*settings);
  testing::run_ranks(1, [&](Communicator& comm) {
    try {
      Trainer(*settings, data.open(comm), comm);
      ADD_FAILURE() << "nothing was refused";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kConfig);
      EXPECT_NE(std::string(e.what()).find("no parameter of right is trained"), std::string::npos) << e.what();
    }
  });
}

TEST(Averages, AreNotMeasuredWhereThereAreNone) {
  try {
    settings_for(1, {"optim.ema=0", "train.eval_ema=true"});
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("train.eval_ema"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep::phases_test
