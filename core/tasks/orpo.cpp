// Odds ratio preference optimisation (Hong et al., "ORPO: Monolithic Preference Optimization without Reference Model",
// 2024): the mean loss of the tokens of prompt and chosen answer, and -beta log sigmoid of the logarithm of the odds
// ratio of the two answers, p / (1 - p), where log p is the mean over an answer's tokens.
#include "core/tasks/pair_task.h"

namespace lockstep {
namespace {

class Orpo : public PairTask {
 public:
  using PairTask::PairTask;
  std::vector<Metric> metrics() const override {
    Metric nll{"nll"};
    nll.lower_is_better = true;
    nll.sum = [](const Tensor& output, const Batch& batch) {
      MetricSum sum;
      for (double loss : token_loss(output, batch).to_vector()) sum.sum += loss, ++sum.count;
      return sum;
    };
    std::vector<Metric> out = PairTask::metrics();
    out.push_back(std::move(nll));
    return out;
  }

 protected:
  Tensor more_output(const Tensor& losses, const Batch& batch) const override {
    return sum(mul(losses, record_of(batch, 0)), {1});
  }
  OfAnswers reward_logs(const Tensor& output, const Batch& batch) const override {
    return ratios(columns_of(output), lengths_of(batch));
  }
  Tensor losses(const Tensor& output, const Batch& batch) const override {
    const OfAnswers logs = reward_logs(output, batch);
    const Tensor odds = sub(sub(logs.chosen, logs.rejected), sub(log_of_rest(logs.chosen), log_of_rest(logs.rejected)));
    return add(token_loss(output, batch), affine(softplus(affine(odds, -1, 0)), beta(), 0));
  }

 private:
  static Tensor token_loss(const Tensor& output, const Batch& batch) {
    const Tensor total = reshape(slice(output, 1, 2, 3), {output.dim(0)});
    return div(total, sum(record_of(batch, 0), {1}));
  }
  // log(1 - p) of log p, finite where p is 1: as 1 - e^x = tanh(-x / 2) (1 + e^x), without a difference of like
  // numbers.
  static Tensor log_of_rest(const Tensor& log_p) {
    return add(log(clamp(tanh(affine(log_p, -0.5, 0)), 1e-30, 1)), softplus(log_p));
  }
};

}  // namespace

Choice<TaskKind> orpo_task() { return task_choice<Orpo, PairTaskOptions>("orpo"); }

}  // namespace lockstep
