#include "core/models/model.h"

#include <algorithm>
#include <utility>

#include "core/base/trace.h"
#include "core/nn/layers.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

Tensor Model::logits(const Tensor& h, const Tensor& weight) {
  gave_features_ = loss_multiplies(), multiplied_ = false;
  if (!gave_features_) return linear(h, weight);
  std::erase_if(features_, [](const Features& f) { return f.of.expired(); });
  features_.push_back({h.storage(), weight});
  return h;
}

Tensor Model::logits(const Tensor& h, Linear& head) {
  if (loss_multiplies() && !head.has_adapter()) return logits(h, head.weight());
  gave_features_ = false;
  return head(h);
}

Tensor Model::loss(Tensor output, const Tensor& target) {
  const double smoothing = training() ? label_smoothing_ : 0;
  for (const Features& f : features_)
    if (f.of.lock() == output.storage()) {
      multiplied_ = true;
      return linear_cross_entropy(output, f.weight, target, loss_rows_, kIgnoreIndex, smoothing);
    }
  check(!(loss_multiplies() && gave_features_), "the loss of ", output,
        ", which no forward pass returned: with set_loss_rows() (train.loss_rows) a pass in training returns features, "
        "which loss() multiplies by the head's weight; hand them on as they are, or set it to 0");
  return cross_entropy(std::move(output), target, kIgnoreIndex, smoothing);
}

Tensor Model::loss_of(const Batch& batch) {
  Tensor loss = batch_loss(output_of(batch), batch);
  check(!gave_features_ || multiplied_,
        "this model's loss took features for logits: with set_loss_rows() "
        "(train.loss_rows) it must call Model::loss(), or ends_in_logits() be false");
  return loss;
}

Tensor Model::batch_loss(Tensor output, const Batch& batch) {
  if (batch.find(kOtherLabels)) {
    const Tensor share = affine(cast(batch[kOtherShare], DType::kFloat32), 1.0 / kShareUnit, 0);
    return mixed_cross_entropy(output, batch[kLabels], batch[kOtherLabels], share, training() ? label_smoothing_ : 0);
  }
  if (!regression_) return loss(std::move(output), batch[kLabels]);
  const Tensor& targets = batch[kTargets];
  require(output.numel() == targets.numel(), ExitCode::kConfig, "the model gives ", output,
          " for targets of a regression ", targets, ": it must give one number for each");
  const Tensor predicted = reshape(output, targets.shape());
  return regression_->huber_delta > 0 ? huber_loss(predicted, targets, regression_->huber_delta)
                                      : mse_loss(predicted, targets);
}

Tensor Model::output_of(const Batch& batch) {
  trace_mark();
  const std::vector<TensorNeed> needs = reads();
  const std::string name = needs.empty() ? "" : needs.front().name;
  return (*this)(name.empty() ? batch.tensors().front().second : batch[name]);
}

std::string unmet_need(const std::vector<TensorNeed>& needs, const std::vector<TensorSpec>& there) {
  using Type = TensorNeed::Type;
  for (const TensorNeed& need : needs) {
    const auto found = std::find_if(there.begin(), there.end(), [&](const TensorSpec& t) {
      return (need.name.empty() ? &t == &there.front() : t.name == need.name) &&
             (need.type == Type::kAny || is_floating(t.dtype) == (need.type == Type::kFloating)) &&
             (need.rank < 0 || t.shape.rank() == need.rank);
    });
    if (found != there.end()) continue;
    std::string text = cat("it reads '", need.name.empty() ? "the first tensor" : need.name, "'");
    if (need.type != Type::kAny) text += need.type == Type::kFloating ? ", floating point" : ", integers";
    if (need.rank >= 0) text += cat(", ", need.rank, need.rank == 1 ? " dimension a sample" : " dimensions a sample");
    text += ", but the data gives ";
    for (size_t i = 0; i < there.size(); ++i)
      text += cat(i ? ", " : "", "'", there[i].name, "' (", to_text(there[i].dtype), " ", there[i].shape, ")");
    return text;
  }
  return "";
}

}  // namespace lockstep
