// Model: the root module of a training run, with its loss. Users derive theirs from it. Owned by the trainer, or by the
// user's own training loop.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/choice.h"
#include "core/nn/module.h"
#include "core/tensor/batch.h"

namespace lockstep {

class Linear;  // core/nn/layers.h

// Shapes of the data, for the constructor of a model.
struct TaskSpec {
  Shape input;          // of one sample: tokens [T], images [H, W, C]
  int64_t classes = 0;  // vocabulary, or labels; 1 where a number is predicted
  bool regression = false;
  int64_t vocabulary = 0;  // of texts that have a label each; 0: classes are tokens, or the samples are no text

  int64_t tokens() const { return vocabulary > 0 ? vocabulary : classes; }
};

// How the numbers that a model predicts are compared with targets: the mean of squares, or, with a `huber_delta` above
// 0, Huber's loss.
struct RegressionLoss {
  double huber_delta = 0;
};

// A tensor of a batch that a model reads.
struct TensorNeed {
  enum class Type { kAny, kFloating, kInteger };
  std::string name;  // empty: the data's first, whatever its name
  Type type = Type::kAny;
  int rank = -1;  // of one sample; negative: any
};

// A part of a step: it goes over all micro-batches with a loss of its own, and updates the parameters of one module.
struct StepPhase {
  std::string module;  // a child's name, which is also the phase's in metrics; empty: all parameters
};

class Model : public ModuleOf<Tensor> {
 public:
  // What this model reads of a batch; data without it is refused before the first step. By default the data's first
  // tensor, and target_need().
  virtual std::vector<TensorNeed> reads() const { return {{}, target_need()}; }
  // Whether what it says of a position depends on later ones, so that data whose targets are the next
  // tokens is refused.
  virtual bool sees_ahead() const { return false; }
  // Whether output_of() keeps the documents of a row apart (core/nn/attention_scope.h); data that has several is
  // refused if not.
  virtual bool separates_documents() const { return false; }
  // What forward() makes of the first tensor that this model reads; a model of several tensors overrides it. Tensors of
  // floating point come in the type that the model computes in.
  virtual Tensor output_of(const Batch& batch);
  // Sum of the losses of a micro-batch's targets, fp32 [1], from that output; labels equal to kIgnoreIndex
  // add 0. By default loss() against the labels, of mixtures the cross-entropy of both labels by their shares, and in a
  // regression the loss of one number a sample against "targets".
  virtual Tensor batch_loss(Tensor output, const Batch& batch);
  // By default, cross-entropy of [..., classes] against int32 labels [...], in training with label smoothing; it may
  // overwrite the output with its gradient if the caller keeps no other handle to it.
  virtual Tensor loss(Tensor output, const Tensor& labels);
  void set_label_smoothing(double share) { label_smoothing_ = share; }  // [0, 1]; 0 until it is called
  // The loss of a batch: batch_loss() of output_of(). Throws ExitCode::kInternal where the output was features, as
  // set_loss_rows() says, and another loss than this class's took them.
  Tensor loss_of(const Batch& batch);
  // Whether forward() ends in logits(), so that the loss may multiply by the head's weight itself.
  virtual bool ends_in_logits() const { return false; }
  // The loss of a model that ends in logits() then holds the logits of this many rows at a time (linear_cross_entropy
  // in core/ops/ops.h); 0, as it is until this is called: all at once. Needs all parameters at hand after the forward
  // pass. In training forward() then returns what the head multiplies, features, of which loss() alone makes logits. It
  // knows them, and views of them, whatever passes came after; any other tensor that comes to loss() in training throws
  // kInternal.
  void set_loss_rows(int64_t rows) { loss_rows_ = rows; }
  void set_regression(const RegressionLoss& how) { regression_ = how; }  // labels are classes until it is called
  // The phases of a step, in order: each sees what those before it updated (two networks that are trained against each
  // other). Between them they update every parameter that is not frozen, none of them twice. By default there is one.
  virtual std::vector<StepPhase> phases() const { return {{}}; }
  // The phase, an index into phases(), whose output and loss the next passes compute. Evaluations are of phase 0.
  void set_phase(size_t phase) { phase_ = phase; }
  size_t phase() const { return phase_; }
  // Floating-point operations of the matrix products in one sample's forward and backward pass, from which the
  // utilisation of the machine is computed; 0: not known.
  virtual double flops() const { return 0; }

 protected:
  // "labels" (of `rank` dimensions a sample; negative: any), or in a regression one of "targets".
  TensorNeed target_need(int rank = -1) const {
    if (regression_) return {std::string(kTargets), TensorNeed::Type::kFloating, 0};
    return {std::string(kLabels), TensorNeed::Type::kInteger, rank};
  }
  // The end of forward(): h weight^T, or, where the loss multiplies, h. A head with an adapter multiplies by itself.
  Tensor logits(const Tensor& h, const Tensor& weight);
  Tensor logits(const Tensor& h, Linear& head);

 private:
  size_t phase_ = 0;
  double label_smoothing_ = 0;
  int64_t loss_rows_ = 0;
  // What forward passes returned in the place of logits, as long as there is a handle to it, and the weight by which
  // loss() multiplies it.
  struct Features {
    std::weak_ptr<Storage> of;
    Tensor weight;
  };
  std::vector<Features> features_;
  bool gave_features_ = false;  // the last forward pass did
  bool multiplied_ = false;     // and loss() has made logits of features since
  bool loss_multiplies() const { return loss_rows_ > 0 && training(); }
  std::optional<RegressionLoss> regression_;
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
