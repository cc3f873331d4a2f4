// Tasks on pairs of answers to one prompt, of which one was preferred (data/samples/text/pair_dataset.h).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/field.h"
#include "core/ops/ops.h"
#include "core/tasks/model_task.h"

namespace lockstep {

// One value for each of B pairs' answers, fp32 [B] each.
struct OfAnswers {
  Tensor chosen, rejected;
};

struct PairTaskOptions {
  double beta = 0.1;
};
std::vector<Field> fields(PairTaskOptions& o);

// A task whose output, [B, 2] or wider, begins with the sums over the tokens of a pair's chosen and of its rejected
// answer of the logarithms of their probabilities; the loss is the mean over pairs. Its model must be causal and keep
// documents apart. Rewards are `beta` times what reward_logs() says of answers.
class PairTask : public ModelTask {
 public:
  PairTask(const PairTaskOptions& options, std::unique_ptr<Model> model, const TaskContext& context)
      : ModelTask(std::move(model)), options_(options), context_(context) {}
  std::pair<std::string, std::string> problem(const TaskSpec& data) const override;
  std::vector<TensorNeed> reads() const override;
  Tensor output(const Batch& batch) override;
  double flops() const override { return 2 * ModelTask::flops(); }
  Tensor loss_of(Tensor output, const Batch& batch) override { return sum(losses(output, batch)); }
  // reward_accuracy (of how many pairs the chosen answer has the higher reward), reward_margin (by how much in the
  // mean), reward_chosen and reward_rejected. Answers of the same tokens have the same reward: a tie, which is not
  // right.
  std::vector<Metric> metrics() const override;

 protected:
  TensorNeed target() const override {
    return {std::string(kAnswers), TensorNeed::Type::kInteger, 1, "data.packing: pairs"};
  }
  virtual Tensor losses(const Tensor& output, const Batch& batch) const = 0;  // of the pairs, fp32 [B]
  virtual OfAnswers reward_logs(const Tensor& output, const Batch& batch) const = 0;
  // A further column of the output: sums of the losses of some of the next tokens, of which `losses` has all, fp32 [B,
  // T].
  virtual Tensor more_output(const Tensor& losses, const Batch& batch) const { return {}; }

  double beta() const { return options_.beta; }
  // 1 at the positions of the chosen record (0) or of the rejected one (1), else 0, fp32 [B, T]; and the same of those
  // that predict a token of its answer.
  static Tensor record_of(const Batch& batch, int record);
  static Tensor answer_of(const Batch& batch, int record);
  static OfAnswers columns_of(const Tensor& pairs);                      // of [B, 2] or wider, the first two
  static OfAnswers lengths_of(const Batch& batch);                       // in tokens
  static OfAnswers ratios(const OfAnswers& a, const OfAnswers& b);       // a / b
  static OfAnswers differences(const OfAnswers& a, const OfAnswers& b);  // a - b

 private:
  Tensor losses_of_tokens(const Batch& batch);

  PairTaskOptions options_;
  TaskContext context_;
};

// A task that compares the model with a reference, which is what the model was when training began: it reads
// kReference.
class ReferenceTask : public PairTask {
 public:
  using PairTask::PairTask;
  std::vector<TensorNeed> reads() const override;
  // Also kl: the mean over the answers' tokens of log(reference / model), an estimate of KL(reference | model) where
  // the reference wrote the answers.
  std::vector<Metric> metrics() const override;

 protected:
  OfAnswers reward_logs(const Tensor& output, const Batch& batch) const override;
};

}  // namespace lockstep
