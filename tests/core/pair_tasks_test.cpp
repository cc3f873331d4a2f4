// Tasks of preferences: losses, gradients and metrics beside their formulas in double precision, on a model that is a
// table.
#include "core/tasks/pair_task.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/autograd/node.h"
#include "core/base/ignore_index.h"
#include "core/models/model.h"
#include "core/nn/module.h"

namespace lockstep::pair_tasks_test {
namespace {

constexpr int64_t kTokens = 5;
constexpr double kBeta = 0.3;

// The logits of the next token are a row of a table.
class Table : public Model {
 public:
  Tensor forward(const Tensor& tokens) override { return embedding(table, tokens); }
  ModelTraits traits() const override { return {.rank = 1, .separates_documents = true}; }
  Tensor& table = parameter("table", {kTokens, kTokens}, Init::uniform(1));
};

// Two pairs: [prompt 1 2 | answer] rows of both records, then padding.
Batch pairs() {
  Batch out;
  const auto add = [&](std::string_view name, const std::vector<int32_t>& values) {
    out.add(std::string(name), Tensor::of(values, {2, 7}));
  };
  add("tokens", {1, 2, 3, 1, 2, 4, 0, 0, 3, 3, 0, 3, 0, 0});
  add("documents", {0, 0, 0, 1, 1, 1, 2, 0, 0, 0, 1, 1, 2, 2});
  add("positions", {0, 1, 2, 0, 1, 2, 0, 0, 1, 2, 0, 1, 0, 0});
  add(kNextTokens, {2, 3, 0, 2, 4, 1, kIgnoreIndex, 3, 3, 1, 3, 2, kIgnoreIndex, kIgnoreIndex});
  add(kAnswers, {0, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 0});
  out.add(std::string(kReference), Tensor::of<float>({-3.5f, -2.75f, -4.25f, -1.5f}, {2, 2}));
  return out;
}

// Of the answers, or with `whole` of all next tokens: sums of logarithms of probabilities, and their numbers.
struct Sums {
  double log_p = 0;
  int count = 0;
};
Sums sums(const std::vector<double>& table, size_t pair, int document, bool whole = false) {
  const Batch batch = pairs();
  const auto at = [&](std::string_view name, size_t i) {
    return static_cast<int>(batch[name].to_vector()[pair * 7 + i]);
  };
  Sums out;
  for (size_t i = 0; i < 7; ++i) {
    if (at("documents", i) != document || (!whole && at(kAnswers, i) == 0)) continue;
    const size_t row = static_cast<size_t>(at("tokens", i)) * kTokens;
    double all = 0;
    for (size_t k = 0; k < kTokens; ++k) all += std::exp(table[row + k]);
    out.log_p += table[row + static_cast<size_t>(at(kNextTokens, i))] - std::log(all);
    ++out.count;
  }
  return out;
}

double expected(const std::string& name, const std::vector<double>& table) {
  const std::vector<double> reference = pairs()[kReference].to_vector();
  double loss = 0;
  for (size_t pair = 0; pair < 2; ++pair) {
    const Sums chosen = sums(table, pair, 0), rejected = sums(table, pair, 1);
    const double c = chosen.log_p - reference[2 * pair], r = rejected.log_p - reference[2 * pair + 1];
    if (name == "dpo") loss += std::log1p(std::exp(-kBeta * (c - r)));
    if (name == "ipo") loss += std::pow(c / chosen.count - r / rejected.count - 1 / (2 * kBeta), 2);
    if (name != "orpo") continue;
    const Sums all = sums(table, pair, 0, true);
    const double a = chosen.log_p / chosen.count, b = rejected.log_p / rejected.count;
    const double odds = (a - b) - (std::log1p(-std::exp(a)) - std::log1p(-std::exp(b)));
    loss += -all.log_p / all.count + kBeta * std::log1p(std::exp(-odds));
  }
  return loss;
}

std::unique_ptr<Task> task(const std::string& name, std::unique_ptr<Model> model, const TaskContext& context = {}) {
  const std::unique_ptr<TaskKind> kind = make_choice(builtin_tasks(), name);
  *std::get<double*>(kind->options().at(0).target) = kBeta;
  return kind->build(std::move(model), context);
}

std::map<std::string, double> measured(const Task& task, const Tensor& output) {
  std::map<std::string, double> out;
  for (const Metric& m : task.metrics()) {
    const MetricSum sum = m.sum(output, pairs());
    out[m.name] = sum.sum / static_cast<double>(sum.count);
  }
  return out;
}

class PairTasks : public ::testing::TestWithParam<std::string> {};

TEST_P(PairTasks, LossAndGradientAreThoseOfTheFormula) {
  auto model = std::make_unique<Table>();
  place_parameters(*model, 1);
  Table& table = *model;
  const auto tuned = task(GetParam(), std::move(model));
  std::vector<double> values = table.table.to_vector();
  const Tensor loss = tuned->loss(pairs(), 0);
  EXPECT_NEAR(loss.item(), expected(GetParam(), values), 2e-6);
  backward(loss);
  const std::vector<double> gradient = grad_of(table.table).to_vector();
  for (size_t i = 0; i < values.size(); ++i) {
    constexpr double kStep = 1e-5;
    const double before = values[i];
    values[i] = before + kStep;
    const double up = expected(GetParam(), values);
    values[i] = before - kStep;
    const double down = expected(GetParam(), values);
    values[i] = before;
    EXPECT_NEAR(gradient[i], (up - down) / (2 * kStep), 1e-5) << "element " << i;
  }
}
INSTANTIATE_TEST_SUITE_P(All, PairTasks, ::testing::Values("dpo", "ipo", "orpo"));

TEST(PairMetrics, AreThoseOfRewards) {
  auto model = std::make_unique<Table>();
  place_parameters(*model, 1);
  const std::vector<double> table = model->table.to_vector(), reference = pairs()[kReference].to_vector();
  const auto tuned = task("dpo", std::move(model));
  const Tensor output = tuned->output(pairs());
  ASSERT_EQ(output.shape(), (Shape{2, 2}));
  double right = 0, margin = 0, chosen = 0, rejected = 0, kl = 0;
  int tokens = 0;
  for (size_t pair = 0; pair < 2; ++pair) {
    const Sums c = sums(table, pair, 0), r = sums(table, pair, 1);
    const double of_c = c.log_p - reference[2 * pair], of_r = r.log_p - reference[2 * pair + 1];
    right += of_c > of_r, margin += kBeta * (of_c - of_r), chosen += kBeta * of_c, rejected += kBeta * of_r;
    kl -= of_c + of_r, tokens += c.count + r.count;
  }
  const auto got = measured(*tuned, output);
  EXPECT_NEAR(got.at("reward_accuracy"), right / 2, 1e-6);
  EXPECT_NEAR(got.at("reward_margin"), margin / 2, 1e-6);
  EXPECT_NEAR(got.at("reward_chosen"), chosen / 2, 1e-6);
  EXPECT_NEAR(got.at("reward_rejected"), rejected / 2, 1e-6);
  EXPECT_NEAR(got.at("kl"), kl / tokens, 1e-6);
}

// Whatever rounding makes of their rewards, and whichever places of a row they have.
TEST(PairMetrics, EqualAnswersAreATie) {
  Batch batch;
  const auto add = [&](std::string_view name, const std::vector<int32_t>& values) {
    batch.add(std::string(name), Tensor::of(values, {2, 7}));
  };
  add("tokens", {1, 2, 3, 1, 2, 3, 0, 1, 2, 3, 1, 2, 4, 0});
  add("documents", {0, 0, 0, 1, 1, 1, 2, 0, 0, 0, 1, 1, 1, 2});
  add("positions", {0, 1, 2, 0, 1, 2, 0, 0, 1, 2, 0, 1, 2, 0});
  add(kNextTokens, {2, 3, 0, 2, 3, 0, kIgnoreIndex, 2, 3, 0, 2, 4, 1, kIgnoreIndex});
  add(kAnswers, {0, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0});
  const auto tuned = task("orpo", std::make_unique<Table>());
  // Logarithms of probabilities: those of the equal answers differ in the last bits.
  const Tensor output = Tensor::of<float>({-2.0f, -2.000001f, 0, -1.0f, -3.0f, 0}, {2, 3});
  std::map<std::string, double> got;
  for (const Metric& metric : tuned->metrics()) {
    if (!metric.sum || !metric.name.starts_with("reward_")) continue;
    const MetricSum sum = metric.sum(output, batch);
    got[metric.name] = sum.sum / static_cast<double>(sum.count);
  }
  EXPECT_EQ(got.at("reward_accuracy"), 0.5) << "the second pair alone";
  EXPECT_NEAR(got.at("reward_margin"), kBeta * (3 - 1) / 2 / 2, 1e-6);
}

TEST(PairTask, RefusesWhatHasNoMeaningForPairs) {
  const auto why = [](std::unique_ptr<Model> model, TaskContext context) {
    context.model_name = "this";
    return task("dpo", std::move(model), context)->problem({});
  };
  const TaskSpec image{{8, 8, 1}, 3};
  EXPECT_EQ(why(std::make_unique<Table>(), {}).first, "");
  EXPECT_EQ(why(std::make_unique<Table>(), {.label_smoothing = 0.1}).first, "train.label_smoothing");
  EXPECT_EQ(why(std::make_unique<Table>(), {.class_weights = {1, 2}}).first, "train.class_weights");
  EXPECT_EQ(why(std::make_unique<Table>(), {.loss_rows = 64}).first, "train.loss_rows");
  EXPECT_EQ(why(std::make_unique<Table>(), {.huber_delta = 1}).first, "train.huber_delta");
  const auto reads = task("dpo", std::make_unique<Table>())->reads();
  const std::string unmet = unmet_need(reads, {{"tokens", DType::kInt32, {4}}});
  EXPECT_NE(unmet.find("set data.packing: pairs"), std::string::npos) << unmet;
}

}  // namespace
}  // namespace lockstep::pair_tasks_test
