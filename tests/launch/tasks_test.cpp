// Tasks of a user's own in a run: a loss over the whole global batch, and one with a frozen teacher. The same bits at
// every number of ranks and shard level, and what does not fit is refused before the first step.
#include <gtest/gtest.h>

#include <cmath>

#include "core/nn/layers.h"
#include "core/ops/ops.h"
#include "core/tasks/model_task.h"
#include "launch/training/evaluation/evaluate.h"
#include "launch/training/loop/run.h"
#include "tests/support/files.h"
#include "tests/support/trained_run.h"

namespace lockstep::tasks_test {
namespace {

struct NetOptions {
  int64_t features = 5;
  double dropout = 0;
};
std::vector<Field> fields(NetOptions& o) {
  return {field("features", o.features, "of the output"), field("dropout", o.dropout, "of the hidden layer")};
}

class Net : public Model {
 public:
  Net(const NetOptions& o, const TaskSpec& task)
      : in_(child<Linear>("in", task.input.numel(), 70)),
        norm_(child<BatchNorm>("norm", 70)),
        drop_(child<Dropout>("drop", o.dropout)),
        out_(child<Linear>("out", 70, o.features)) {}
  Tensor forward(const Tensor& x) override { return out_(drop_(norm_(in_(reshape(x, {x.dim(0), -1})), true))); }

 private:
  Linear& in_;
  BatchNorm& norm_;
  Dropout& drop_;
  Linear& out_;
};

// Outputs of the same label attract, and others repel: every pair of samples of the step counts.
class Attract : public GlobalBatchTask {
 public:
  Attract(std::unique_ptr<Model> model, const TaskContext&) : model_(std::move(model)) {}
  Module& module() override { return *model_; }
  std::vector<TensorNeed> reads() const override { return {{"images", TensorNeed::Type::kFloating, 3}}; }
  Tensor output(const Batch& batch) override { return model_->output_of(batch); }
  Tensor losses(const Tensor& outputs) override {
    const Tensor products = matmul(outputs, transpose(outputs, 0, 1));
    return reshape(sum(log_softmax(products) * -1.0, {1}), {outputs.dim(0)}) / static_cast<double>(outputs.dim(0));
  }

 private:
  std::unique_ptr<Model> model_;
};

// Gives one loss for all.
class Careless : public Attract {
 public:
  using Attract::Attract;
  Tensor losses(const Tensor& outputs) override { return sum(outputs); }
};

struct TeacherOptions {
  std::string teacher;
};
std::vector<Field> fields(TeacherOptions& o) { return {field("teacher", o.teacher, "run whose model is imitated")}; }

class Imitate : public LabelTask {
 public:
  Imitate(const TeacherOptions& o, std::unique_ptr<Model> model, const TaskContext& context)
      : LabelTask(std::move(model), context), teacher_(context.open_model(o.teacher)) {}
  Tensor loss(const Batch& batch, size_t phase) override {
    Tensor wanted;
    {
      NoGrad no_grad;
      wanted = softmax(cast(teacher_->output_of(batch), DType::kFloat32));
    }
    const Tensor output = cast(this->output(batch), DType::kFloat32);
    return kl_div(log_softmax(output), wanted) + LabelTask::loss_of(output, batch);
  }

 private:
  std::unique_ptr<Model> teacher_;
};

App app() {
  App out = builtin();
  out.models.push_back(model_choice<Net, NetOptions>("net"));
  out.tasks.push_back(task_choice<Attract>("attract"));
  out.tasks.push_back(task_choice<Careless>("careless"));
  out.tasks.push_back(task_choice<Imitate, TeacherOptions>("imitate"));
  return out;
}

std::unique_ptr<Settings> settings_for(int ranks, const std::vector<std::string>& more) {
  ConfigTree tree = ConfigTree::parse(
      "model: {name: net}\n"
      "data: {name: synthetic_images, validation: 0.2, threads: 0, synthetic: {images: 52, height: 4, width: 4}}\n"
      "optim: {name: adamw, lr: 0.01}\n"
      "batch: {global: 12, micro: 3}\n"
      "comm: {bucket: 0.0001}\n"
      "train: {steps: 5}\n",  // 42 samples: the fourth step has 6, two micro-batches
      "tasks.yaml");
  for (const std::string& one : more) tree.apply_override(one);
  return load_settings(app(), std::move(tree), ranks);
}

testing::TrainedRun train(int ranks, const std::vector<std::string>& more) {
  const auto settings = settings_for(ranks, more);
  return testing::train_run(*settings, ranks, settings->train.steps);
}

void expect_one_digest(const std::vector<std::string>& keys) { testing::expect_one_run(train, keys); }

TEST(GlobalBatch, HasTheSameBitsEverywhere) { expect_one_digest({"task.name=attract"}); }
TEST(GlobalBatch, HasTheSameBitsEverywhereWithDropout) {
  expect_one_digest({"task.name=attract", "model.dropout=0.3"});
}
TEST(GlobalBatch, HasTheSameBitsEverywhereInBf16) {
  expect_one_digest({"task.name=attract", "precision.compute=bf16"});
}

// Micro-batches of another size sum in another order, and batch norm takes its statistics from each, so a model without
// it and a tolerance tell.
TEST(GlobalBatch, IsOfAllSamplesWhateverTheMicroBatches) {
  const std::vector<std::string> keys{"task.name=attract", "model.name=mlp", "model.hidden=[9]", "train.steps=3"};
  const auto with = [&](const char* micro) {
    std::vector<std::string> more = keys;
    more.push_back(micro);
    return train(1, more).losses();
  };
  const std::vector<double> whole = with("batch.micro=12"), parts = with("batch.micro=3");
  ASSERT_EQ(whole.size(), 3u);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-5 * whole[i]) << i;
  EXPECT_NE(whole[0], whole[2]);
}

std::string refusal(const std::vector<std::string>& keys, bool steps = false) {
  const auto settings = settings_for(1, keys);
  SharedData data(*settings);
  std::string out = "nothing was refused";
  testing::run_ranks(1, [&](Communicator& comm) {
    try {
      Trainer trainer(*settings, data.open(comm), comm);
      if (steps) trainer.step();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kConfig) << e.what();
      out = e.what();
    }
  });
  return out;
}

TEST(GlobalBatch, NeedsALossOfEachSample) {
  EXPECT_NE(refusal({"task.name=careless"}, true).find("it must give one for each"), std::string::npos);
}

TEST(Teacher, IsFrozenAndWholeOnEveryRank) {
  const test::TemporaryFolder dir;
  const std::string teacher = dir / "teacher";
  const auto settings = settings_for(1, {"run.dir=" + teacher, "model.name=mlp", "model.hidden=[11]"});
  SharedData data(*settings);
  testing::run_ranks(1, [&](Communicator& comm) { lockstep::Run(*settings, data.open(comm), comm, {}).go(); });
  const Hash128 before = digest_of(open_newest(teacher));
  const std::vector<std::string> keys{"model.name=mlp", "model.hidden=[4]", "task.name=imitate",
                                      "task.teacher=" + teacher};
  expect_one_digest(keys);
  EXPECT_EQ(digest_of(open_newest(teacher)), before);
  EXPECT_NE(train(1, keys).digest, train(1, {"model.name=mlp", "model.hidden=[4]"}).digest);
}

TEST(Tasks, AreOfThisProgram) {
  App with = app();
  with.tasks.pop_back();
  ConfigTree tree = ConfigTree::parse("task: {name: imitate}\n", "own.yaml");
  try {
    load_settings(with, std::move(tree), 1);
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kConfig);
    EXPECT_NE(std::string(e.what()).find("own.yaml:1"), std::string::npos) << e.what();
  }
}

TEST(Batches, KeepTargetsAndWeightsInFp32) {
  Batch batch;
  for (const std::string_view name : {std::string_view("features"), kTargets, kSampleWeights})
    batch.add(std::string(name), Tensor::of<float>({1.001f}, {1}));
  const Batch computed = as_computed(batch, DType::kBFloat16);
  EXPECT_EQ(computed["features"].dtype(), DType::kBFloat16);
  for (const std::string_view name : {kTargets, kSampleWeights}) EXPECT_EQ(computed[name].item(), 1.001f);
}

}  // namespace
}  // namespace lockstep::tasks_test
