// Task: what is learnt from the data: the model or models that it trains, what it reads of a batch, the phases of a
// step, the loss and the metrics. Users derive theirs from it, or from one of this folder. Owned by a PlacedTask
// (launch/training/step/placed_task.h), or by a loop of one's own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/choice.h"
#include "core/metrics/metric.h"
#include "core/models/model.h"

namespace lockstep {

// A part of a step: it goes over all micro-batches with a loss of its own, and updates the parameters of one module.
struct StepPhase {
  std::string module;  // a child's name, which is also the phase's in metrics; empty: all parameters
};

class Task {
 public:
  virtual ~Task() = default;
  // The root of what is trained: parameters are named below it. What else a task owns, such as a teacher, is frozen.
  virtual Module& module() = 0;
  // What the task reads of a batch; data without it is refused before the first step.
  virtual std::vector<TensorNeed> reads() const = 0;
  // Why it cannot be learnt from such data or with its options: a key of the configuration, and why; empty where it
  // can. Asked once reads() is met.
  virtual std::pair<std::string, std::string> problem(const TaskSpec& data) const { return {}; }
  // The phases of a step, in order: each sees what those before it updated (two networks that are trained against each
  // other). Between them they update every parameter that is not frozen, none of them twice. By default there is one.
  virtual std::vector<StepPhase> phases() const { return {{}}; }
  // What is predicted for a batch, in the order of its samples: [B, ...]. Metrics compare it with the batch, and the
  // first tensor that is read is enough for it. Tensors of floating point come in the type that the model computes in.
  virtual Tensor output(const Batch& batch) = 0;
  // Sum of the losses of a batch's targets, fp32 [1], from that output; labels equal to kIgnoreIndex add 0. The mean
  // is over the labels that count, or, of data without labels, over samples. Where samples have weights
  // (kSampleWeights), each loss is multiplied by its sample's, and the mean is over the sum of these. It may overwrite
  // the output with its gradient if the caller keeps no other handle to it.
  virtual Tensor loss_of(Tensor output, const Batch& batch) = 0;
  // Whether its losses take the weights of samples; of a task that does not, data that has them is refused.
  virtual bool weighs_samples() const { return false; }
  // The same of a phase, an index into phases(), in training.
  virtual Tensor loss(const Batch& batch, size_t phase) { return loss_of(output(batch), batch); }
  // What evaluations measure beside the loss.
  virtual std::vector<Metric> metrics() const { return {}; }
  // Floating-point operations of the matrix products in one sample's forward and backward pass, from which the
  // utilisation of the machine is computed; 0: not known.
  virtual double flops() const { return 0; }

  // The name of its kind, "classify"; where it was asked for as auto, of what auto chose. Set by who builds it.
  const std::string& kind() const { return kind_; }
  void set_kind(const std::string& name) {
    if (kind_.empty()) kind_ = name;
  }

 private:
  std::string kind_;
};

// A loss over a whole global batch, such as of which of its samples belong together: what each sample adds depends on
// all samples' outputs. A first pass without a graph gathers the outputs in the order of the samples; the gradient of
// the loss by each of them is computed from these, on every rank alike; then each micro-batch runs again, with its part
// of that gradient (Gao et al., "Scaling deep contrastive learning batch size under memory limited setup", 2021). The
// memory of a step is that of a micro-batch, and the outputs'.
class GlobalBatchTask : public Task {
 public:
  // The loss of each sample, fp32 [N], from the outputs of all, fp32 [N, ...], in their order.
  virtual Tensor losses(const Tensor& outputs) = 0;
  Tensor loss_of(Tensor output, const Batch& batch) override;  // of a batch that is all there is
};

class TaskKind;

// What a task is made with.
struct TaskContext {
  TaskSpec data = {};
  std::string model_name = {};  // for messages
  double label_smoothing = 0;
  std::vector<double> class_weights = {};  // of the training loss of each class; empty: all count alike
  int64_t loss_rows = 0;                   // of logits that a language model's loss holds at a time; 0: all
  double huber_delta = 0;
  std::shared_ptr<TokenTexts> token_texts = {};  // of the data's tokens; null where nobody knows what they stand for
  std::vector<Choice<TaskKind>> tasks = {};      // that auto chooses from; empty: builtin_tasks()
  // The model of a run directory, a checkpoint or a folder of transformers, whole on every rank, for frozen companions
  // such as a teacher. Throws what opening it throws. Empty where there is nothing to open files with.
  std::function<std::unique_ptr<Model>(const std::string& path)> open_model = {};
};

// The options of one kind of task, and how to make it of a model.
class TaskKind : public Configurable {
 public:
  virtual std::unique_ptr<Task> build(std::unique_ptr<Model> model, const TaskContext& context) const = 0;
};

// `T` is made as T(std::unique_ptr<Model>, const TaskContext&).
template <class T>
Choice<TaskKind> task_choice(std::string name) {
  struct Made final : TaskKind {
    std::unique_ptr<Task> build(std::unique_ptr<Model> model, const TaskContext& context) const override {
      return std::make_unique<T>(std::move(model), context);
    }
  };
  return choice<TaskKind, Made>(std::move(name));
}

// `Options` has `std::vector<Field> fields(Options&)`; `T` is made as T(const Options&, std::unique_ptr<Model>, const
// TaskContext&).
template <class T, class Options>
Choice<TaskKind> task_choice(std::string name) {
  struct Made final : TaskKind {
    Options value;
    std::vector<Field> options() override { return fields(value); }
    std::unique_ptr<Task> build(std::unique_ptr<Model> model, const TaskContext& context) const override {
      return std::make_unique<T>(value, std::move(model), context);
    }
  };
  return choice<TaskKind, Made>(std::move(name));
}

// The tasks of this folder: each NAME.cpp but task.cpp, model_task.cpp and pair_task.cpp defines `Choice<TaskKind>
// NAME_task()`. auto_task() is the first: the model's own task, or the one that the data's targets are of.
std::vector<Choice<TaskKind>> builtin_tasks();

}  // namespace lockstep
