// Model: the root module of a training run, with its loss. What a user writes.
// Owned by the trainer, or by a loop of one's own.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/choice.h"
#include "core/nn/module.h"

namespace lockstep {

// What the data looks like, told to a model when it is built.
struct TaskSpec {
  Shape input;          // of one sample: tokens [T], images [H, W, C]
  int64_t classes = 0;  // vocabulary, or labels
};

class Model : public Module {
 public:
  // Sum of the losses of a micro-batch's targets, fp32 [1], from what forward() gave; targets equal to kIgnoreIndex
  // count nothing. By default, cross-entropy of [..., classes] against int32 targets [...], which may put the output's
  // gradient in its place where the caller keeps no handle to it.
  virtual Tensor loss(Tensor output, const Tensor& target);
  // Floating-point operations of the matrix products in one sample's forward and backward pass, by which the part of a
  // machine's peak is reckoned; 0: not known.
  virtual double flops() const { return 0; }
};

// How many rows of output [..., classes] have their largest value at the target (ignored ones left out); -1 where the
// shapes are no classification.
int64_t count_correct(const Tensor& output, const Tensor& target);

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

// The models of this folder: each NAME.cpp but model.cpp defines `Choice<ModelKind> NAME_model()`. gpt is the first.
std::vector<Choice<ModelKind>> builtin_models();

}  // namespace lockstep
