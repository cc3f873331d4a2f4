#include "core/tasks/model_task.h"

#include "core/base/ignore_index.h"
#include "core/ops/ops.h"

namespace lockstep {

std::vector<TensorNeed> ModelTask::reads() const {
  std::vector<TensorNeed> needs = model_->reads();
  needs.push_back(target());
  return needs;
}

LabelTask::LabelTask(std::unique_ptr<Model> model, const TaskContext& context)
    : ModelTask(std::move(model)), context_(context) {}

std::pair<std::string, std::string> LabelTask::problem(const TaskSpec& data) const {
  if (context_.huber_delta > 0) return {"train.huber_delta", "the targets of this data are labels, not numbers"};
  if (!context_.class_weights.empty() && !takes_class_weights())
    return {"train.class_weights", "is for classes of samples and of pixels, not for tokens"};
  if (!context_.class_weights.empty() && data.find(kOtherLabels))
    return {"train.class_weights", "cannot be together with data.augment.mixup, whose samples have two labels"};
  if (context_.loss_rows > 0)
    return {"train.loss_rows", str("the model ", context_.model_name,
                                   " does not end in the logits of a next token; gpt and llama do, and take it")};
  return {};
}

Tensor LabelTask::loss_of(Tensor output, const Batch& batch) {
  const std::vector<double>& weights = context_.class_weights;
  const bool of_classes = !weights.empty() && model().training();
  if (of_classes && !class_weights_)
    class_weights_ = Tensor::of(std::vector<float>(weights.begin(), weights.end()), {std::ssize(weights)});
  const Tensor* of_samples = batch.find(kSampleWeights);
  if (of_classes || of_samples)
    return weighted_cross_entropy(output, batch[kLabels], of_classes ? class_weights_ : Tensor(), kIgnoreIndex,
                                  smoothing(), of_samples ? *of_samples : Tensor());
  if (batch.find(kOtherLabels)) {
    const Tensor share = affine(cast(batch[kOtherShare], DType::kFloat32), 1.0 / kShareUnit, 0);
    return mixed_cross_entropy(output, batch[kLabels], batch[kOtherLabels], share, smoothing());
  }
  return cross_entropy(std::move(output), batch[kLabels], kIgnoreIndex, smoothing());
}

}  // namespace lockstep
