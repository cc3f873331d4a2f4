// Two networks that are trained against each other (core/models/gan.h). Phases: the discriminator learns to tell a
// micro-batch's images from as many that are generated; then the generator learns to make it take its images for the
// data's, of whichever class. All of the data is one class unless the model's options ask for those of its labels. In
// both phases, and in evaluations, noise is a function of seed, step and sample.
#include "core/models/gan.h"

#include "core/ops/ops.h"
#include "core/tasks/task.h"

namespace lockstep {
namespace {

// log(p / (1 - p)) of the probability p that an image is of one of the data's classes: [B, K + 1] -> fp32 [B, 1].
Tensor logit_of_data(const Tensor& output) {
  const int64_t classes = output.dim(1) - 1;
  const auto parts = split(cast(output, DType::kFloat32), {classes, 1}, 1);
  // The logarithm of the sum of exponentials is any logit less its log-softmax.
  const Tensor first = slice(parts[0], 1, 0, 1), of_first = slice(log_softmax(parts[0]), 1, 0, 1);
  return first - of_first - parts[1];
}

class GanTask : public Task {
 public:
  GanTask(std::unique_ptr<Model> model, const TaskContext& context)
      : model_(std::move(model)), gan_(dynamic_cast<Gan*>(model_.get())), context_(context) {
    require(gan_, ExitCode::kConfig, "task.name: gan trains the two networks of model.name: gan, not ",
            context.model_name);
  }

  Module& module() override { return *model_; }
  std::vector<TensorNeed> reads() const override {
    std::vector<TensorNeed> needs = gan_->reads();
    if (gan_->labelled()) needs.push_back({std::string(kLabels), TensorNeed::Type::kInteger, 0});
    return needs;
  }
  std::pair<std::string, std::string> problem(const TaskSpec& data) const override {
    if (data.find(kOtherLabels)) return {"data.augment.mixup", "gan has no loss of labels that could be mixed"};
    if (!context_.class_weights.empty()) return {"train.class_weights", "gan has a loss of its own, without them"};
    if (context_.label_smoothing > 0) return {"train.label_smoothing", "gan has a loss of its own, without it"};
    if (context_.huber_delta > 0) return {"train.huber_delta", "gan has a loss of its own, without it"};
    if (context_.loss_rows > 0)
      return {"train.loss_rows", "gan does not end in the logits of a next token; gpt and llama do, and take it"};
    return {};
  }
  std::vector<StepPhase> phases() const override { return {{"discriminator"}, {"generator"}}; }

  Tensor output(const Batch& batch) override { return judged(batch, true); }

  Tensor loss_of(Tensor output, const Batch& batch) override {
    const int64_t images = output.dim(0) / 2;
    const auto all = [&](int64_t name) {
      return Tensor::of(std::vector<int32_t>(static_cast<size_t>(images), static_cast<int32_t>(name)), {images});
    };
    return cross_entropy(std::move(output),
                         concat({gan_->labelled() ? batch[kLabels] : all(0), all(gan_->classes())}, 0));
  }

  Tensor loss(const Batch& batch, size_t phase) override {
    if (phase == 0) return Task::loss(batch, phase);
    const Tensor output = judged(batch, false);
    return bce_with_logits(logit_of_data(output), Tensor::full({output.dim(0), 1}, 1));
  }

 private:
  Tensor judged(const Batch& batch, bool both) { return gan_->judged(batch[gan_->reads()[0].name], both); }

  std::unique_ptr<Model> model_;
  Gan* gan_;
  TaskContext context_;
};

}  // namespace

Choice<TaskKind> gan_task() { return task_choice<GanTask>("gan"); }

}  // namespace lockstep
