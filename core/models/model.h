// Model: a function of a sample's tensors. What is learnt with it, its loss among that, is a Task
// (core/tasks/task.h). Users derive theirs from it. Owned by its task, or by the user's own training loop.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/choice.h"
#include "core/nn/module.h"
#include "core/tensor/batch.h"

namespace lockstep {

// Shapes of the data, for the constructor of a model; and, for that of a task, what else it is told of the data.
struct TaskSpec {
  Shape input;          // of one sample: tokens [T], images [H, W, C]
  int64_t classes = 0;  // vocabulary, or labels; 1 where a number is predicted
  bool regression = false;
  int64_t vocabulary = 0;  // of texts that have a label each; 0: classes are tokens, or the samples are no text
  std::vector<TensorSpec> tensors = {};    // of a sample; empty where there is no data at hand
  bool next_tokens = false;                // labels are the tokens after those of the input
  double target_std = 1;                   // what 1 of "targets" is in the data's unit
  std::vector<int64_t> class_counts = {};  // samples of each class in training; empty: not known, or not one label each

  int64_t tokens() const { return vocabulary > 0 ? vocabulary : classes; }
  const TensorSpec* find(std::string_view name) const {  // null where there is none
    for (const TensorSpec& t : tensors)
      if (t.name == name) return &t;
    return nullptr;
  }
  const Shape& shape_of(std::string_view name) const;  // throws ExitCode::kConfig where there is none
};

// A tensor of a batch that a model or a task reads.
struct TensorNeed {
  enum class Type { kAny, kFloating, kInteger };
  std::string name;  // empty: the data's first, whatever its name
  Type type = Type::kAny;
  int rank = -1;            // of one sample; negative: any
  std::string source = {};  // what to set so that data has it, for messages
};

// What is known of a model's result without running it.
struct ModelTraits {
  int rank = -1;  // positions of a sample's result: 0: one result, 1: one for each token, 2: for each pixel; -1: any
  bool causal = true;                // the result at a position does not depend on later ones
  bool separates_documents = false;  // the documents of a row are kept apart (core/nn/attention_scope.h)
};

class Model : public ModuleOf<Tensor> {
 public:
  // What this model reads of a batch, without targets; data without it is refused before the first step. By default the
  // data's first tensor.
  virtual std::vector<TensorNeed> reads() const { return {{}}; }
  virtual ModelTraits traits() const { return {}; }
  // The task that it is made for, of those that the program has; empty: what the data's targets are of.
  virtual std::string task() const { return {}; }
  // A model of one tensor overrides this one; of several, output_of().
  Tensor forward(const Tensor& x) override;
  // What forward() makes of the first tensor that this model reads. Tensors of floating point come in the type
  // that the model computes in.
  virtual Tensor output_of(const Batch& batch);
  // Floating-point operations of the matrix products in one sample's forward and backward pass; 0: not known.
  virtual double flops() const { return 0; }
};

// In words, what `needs` asks for that the data lacks; empty where all is there.
std::string unmet_need(const std::vector<TensorNeed>& needs, const std::vector<TensorSpec>& there);

// The options of one kind of model, and how to build it from them.
class ModelKind : public Configurable {
 public:
  virtual std::unique_ptr<Model> build(const TaskSpec& task) const = 0;
};

// `Options` has `std::vector<Field> fields(Options&)`; `M` is built as M(const Options&, const TaskSpec&).
template <class M, class Options>
Choice<ModelKind> model_choice(std::string name) {
  struct Made final : ModelKind {
    Options value;
    std::vector<Field> options() override { return fields(value); }
    std::unique_ptr<Model> build(const TaskSpec& task) const override { return std::make_unique<M>(value, task); }
  };
  return choice<ModelKind, Made>(std::move(name));
}

// The models of this folder: each NAME.cpp but model.cpp defines `Choice<ModelKind> NAME_choice()`. gpt is the first.
std::vector<Choice<ModelKind>> builtin_models();

}  // namespace lockstep
