#include "core/tasks/pair_task.h"

#include "core/base/trace.h"
#include "core/models/token_transformer.h"

namespace lockstep {
std::vector<Field> fields(PairTaskOptions& o) {
  return {field("beta", o.beta,
                "dpo and ipo: larger values keep the model closer to the reference; orpo: weight of the odds ratio")
              .with_range(1e-6, 1e6)};
}

Tensor PairTask::record_of(const Batch& batch, int record) {
  return cast(eq(batch["documents"], Tensor::full({1}, record, DType::kInt32)), DType::kFloat32);
}
Tensor PairTask::answer_of(const Batch& batch, int record) {
  return mul(record_of(batch, record), cast(batch[kAnswers], DType::kFloat32));
}

std::pair<std::string, std::string> PairTask::problem(const TaskSpec& data) const {
  if (!model().traits().causal)
    return {"model.name", str(context_.model_name, " predicts no next token, of which answers are made")};
  if (!model().traits().separates_documents)
    return {"model.name", str(context_.model_name, " cannot keep the two answers of a row apart; gpt and llama do")};
  if (context_.huber_delta > 0) return {"train.huber_delta", "the targets are answers, not numbers"};
  if (!context_.class_weights.empty()) return {"train.class_weights", "is for classes of samples and of pixels"};
  if (context_.label_smoothing > 0)
    return {"train.label_smoothing", "the loss compares whole answers, whose tokens have no smoothed target"};
  const auto* transformer = dynamic_cast<const TokenTransformer*>(&model());
  if (context_.loss_rows > 0 && !(transformer && transformer->has_features()))
    return {"train.loss_rows", str("the model ", context_.model_name, " does not take it")};
  return {};
}

std::vector<TensorNeed> PairTask::reads() const {
  std::vector<TensorNeed> needs = ModelTask::reads();
  for (std::string_view name : {std::string_view("documents"), std::string_view("positions"), kNextTokens})
    needs.push_back({std::string(name), TensorNeed::Type::kInteger, 1});
  return needs;
}

// With train.loss_rows the head multiplies within the loss, which needs all parameters at hand after the forward pass.
Tensor PairTask::losses_of_tokens(const Batch& batch) {
  auto* transformer = context_.loss_rows > 0 ? dynamic_cast<TokenTransformer*>(&model()) : nullptr;
  if (!transformer || !model().training() || !transformer->head())
    return token_losses(model().output_of(batch), batch[kNextTokens]);
  return transformer->with_features(batch, [&](const Tensor& features, const Tensor& head) {
    return linear_token_losses(features, head, batch[kNextTokens], context_.loss_rows, kIgnoreIndex,
                               transformer->logit_cap());
  });
}

Tensor PairTask::output(const Batch& batch) {
  trace_mark();
  const Tensor losses = cast(losses_of_tokens(batch), DType::kFloat32);
  const Shape column{losses.dim(0), 1};
  const auto log_probability = [&](int document) {
    return reshape(affine(sum(mul(losses, answer_of(batch, document)), {1}), -1, 0), column);
  };
  std::vector<Tensor> columns{log_probability(0), log_probability(1)};
  if (const Tensor more = more_output(losses, batch)) columns.push_back(reshape(more, column));
  return concat(columns, 1);
}

OfAnswers PairTask::columns_of(const Tensor& pairs) {
  const auto column = [&](int64_t index) { return reshape(slice(pairs, 1, index, index + 1), {pairs.dim(0)}); };
  return {column(0), column(1)};
}
OfAnswers PairTask::lengths_of(const Batch& batch) {
  return {sum(answer_of(batch, 0), {1}), sum(answer_of(batch, 1), {1})};
}
OfAnswers PairTask::ratios(const OfAnswers& a, const OfAnswers& b) {
  return {div(a.chosen, b.chosen), div(a.rejected, b.rejected)};
}
OfAnswers PairTask::differences(const OfAnswers& a, const OfAnswers& b) {
  return {sub(a.chosen, b.chosen), sub(a.rejected, b.rejected)};
}

namespace {

// Of each pair, whether its answers are the same tokens. Their rewards then differ by rounding alone, because they lie
// at other places of a row.
std::vector<bool> equal_answers(const Batch& batch) {
  const int64_t rows = batch[kAnswers].dim(0), width = batch[kAnswers].dim(1);
  const std::vector<double> documents = batch["documents"].to_vector(), answers = batch[kAnswers].to_vector(),
                            next = batch[kNextTokens].to_vector();
  std::vector<bool> out;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> tokens[2];
    for (auto i = static_cast<size_t>(row * width); i < static_cast<size_t>((row + 1) * width); ++i)
      if (answers[i] != 0 && documents[i] < 2) tokens[static_cast<size_t>(documents[i])].push_back(next[i]);
    out.push_back(tokens[0] == tokens[1]);
  }
  return out;
}

}  // namespace

std::vector<Metric> PairTask::metrics() const {
  const auto mean_of = [this](std::string name, double (*of)(double chosen, double rejected)) {
    Metric metric{std::move(name)};
    metric.sum = [this, of](const Tensor& output, const Batch& batch) {
      const OfAnswers logs = reward_logs(output, batch);
      const std::vector<double> chosen = logs.chosen.to_vector(), rejected = logs.rejected.to_vector();
      const std::vector<bool> equal = equal_answers(batch);
      MetricSum sum{0, std::ssize(chosen)};
      for (size_t i = 0; i < chosen.size(); ++i)
        sum.sum += of(beta() * chosen[i], beta() * (equal[i] ? chosen[i] : rejected[i]));
      return sum;
    };
    return metric;
  };
  std::vector<Metric> out{mean_of("reward_accuracy", [](double c, double r) { return c > r ? 1.0 : 0.0; }),
                          mean_of("reward_margin", [](double c, double r) { return c - r; }),
                          mean_of("reward_chosen", [](double c, double) { return c; }),
                          mean_of("reward_rejected", [](double, double r) { return r; })};
  out.back().lower_is_better = true;
  return out;
}

std::vector<TensorNeed> ReferenceTask::reads() const {
  std::vector<TensorNeed> needs = PairTask::reads();
  needs.push_back({std::string(kReference), TensorNeed::Type::kFloating, 1});
  return needs;
}

OfAnswers ReferenceTask::reward_logs(const Tensor& output, const Batch& batch) const {
  return differences(columns_of(output), columns_of(batch[kReference]));
}

std::vector<Metric> ReferenceTask::metrics() const {
  Metric kl{"kl"};
  kl.lower_is_better = true;
  kl.sum = [](const Tensor& output, const Batch& batch) {
    MetricSum sum;
    for (double value : sub(batch[kReference], output).to_vector()) sum.sum += value;
    for (double one : batch[kAnswers].to_vector()) sum.count += static_cast<int64_t>(one);
    return sum;
  };
  std::vector<Metric> out = PairTask::metrics();
  out.push_back(std::move(kl));
  return out;
}

}  // namespace lockstep
