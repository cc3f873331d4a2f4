// Tasks of one model whose output is compared with a tensor of the batch.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tasks/task.h"

namespace lockstep {

class ModelTask : public Task {
 public:
  explicit ModelTask(std::unique_ptr<Model> model) : model_(std::move(model)) {}
  Module& module() override { return *model_; }
  std::vector<TensorNeed> reads() const override;  // the model's and target()
  Tensor output(const Batch& batch) override { return model_->output_of(batch); }
  double flops() const override { return model_->flops(); }

 protected:
  Model& model() { return *model_; }
  const Model& model() const { return *model_; }
  virtual TensorNeed target() const = 0;  // with what the output is compared

 private:
  std::unique_ptr<Model> model_;
};

// The cross-entropy of [..., classes] against int32 labels [...], in training with label smoothing and class weights,
// where samples have weights with these; of mixtures of two samples that of both labels, by their shares.
class LabelTask : public ModelTask {
 public:
  LabelTask(std::unique_ptr<Model> model, const TaskContext& context);
  std::pair<std::string, std::string> problem(const TaskSpec& data) const override;
  Tensor loss_of(Tensor output, const Batch& batch) override;
  std::vector<Metric> metrics() const override { return token_metrics(); }

 protected:
  TensorNeed target() const override {
    return {std::string(kLabels), TensorNeed::Type::kInteger, model().traits().rank};
  }
  const TaskContext& context() const { return context_; }
  virtual bool takes_class_weights() const { return false; }
  double smoothing() const { return model().training() ? context_.label_smoothing : 0; }

 private:
  TaskContext context_;
  Tensor class_weights_;  // context_.class_weights, once they are used
};

}  // namespace lockstep
