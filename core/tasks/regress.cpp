// A number a sample: "targets" [B]. The loss is the sum of squares, or Huber's, each by its sample's weight.
#include "core/ops/ops.h"
#include "core/tasks/model_task.h"

namespace lockstep {
namespace {

class Regress : public ModelTask {
 public:
  Regress(std::unique_ptr<Model> model, const TaskContext& context) : ModelTask(std::move(model)), context_(context) {}

  std::pair<std::string, std::string> problem(const TaskSpec& data) const override {
    if (context_.label_smoothing > 0)
      return {"train.label_smoothing", "the targets of this data are numbers, not labels"};
    if (!context_.class_weights.empty())
      return {"train.class_weights", "the targets of this data are numbers, not labels"};
    if (data.find(kOtherLabels))
      return {"data.augment.mixup", str(context_.model_name, " has no loss of labels that could be mixed")};
    if (context_.loss_rows > 0)
      return {"train.loss_rows", "the targets of this data are numbers; it is for models of a next token"};
    return {};
  }

  Tensor loss_of(Tensor output, const Batch& batch) override {
    const Tensor& targets = batch[kTargets];
    require(output.numel() == targets.numel(), ExitCode::kConfig, "the model gives ", output,
            " for targets of a regression ", targets, ": it must give one number for each");
    const Tensor predicted = reshape(output, targets.shape());
    const Tensor* found = batch.find(kSampleWeights);
    const Tensor weights = found ? *found : Tensor();
    return context_.huber_delta > 0 ? huber_loss(predicted, targets, context_.huber_delta, weights)
                                    : mse_loss(predicted, targets, weights);
  }
  bool weighs_samples() const override { return true; }

  std::vector<Metric> metrics() const override { return number_metrics(context_.data.target_std); }

 protected:
  TensorNeed target() const override { return {std::string(kTargets), TensorNeed::Type::kFloating, 0}; }

 private:
  TaskContext context_;
};

}  // namespace

Choice<TaskKind> regress_task() { return task_choice<Regress>("regress"); }

}  // namespace lockstep
