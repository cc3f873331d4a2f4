// TrainedModel: a model that was trained, for predictions in a program of one's own: in this process, without ranks,
// on the current device. Files are predicted by `lockstep predict`. Not for several threads at the same time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/models/model.h"
#include "data/samples/schema.h"
#include "launch/app.h"

namespace lockstep {

class TrainedModel {
 public:
  // `path`: a run directory, whose newest checkpoint it is, a checkpoint, or a folder of transformers. `app`: the
  // models to choose from, with those of the program's own. `overrides` of the run's configuration: "init.from=PATH"
  // where the model has moved that holds its frozen parameters. Throws ExitCode::kMissingInput, kBadData.
  explicit TrainedModel(const std::string& path, const App& app = builtin(),
                        const std::vector<std::string>& overrides = {});

  // The predictions for samples in the unit of the data that the model was trained on: rows float32 [B, features], of
  // a category 1 for the feature of its value and 0 for the others; images uint8 [B, height, width, channels]; tokens
  // int32 [B, tokens]. It computes in the type that the run trained in (precision.compute). They are probabilities
  // float32 [B, classes] where samples have a label, as `lockstep predict` computes them, numbers float64 [B] in their
  // own unit where they have one to predict, and else what the model gives. Throws ExitCode::kUsage for samples of
  // another shape.
  Tensor predict(const Tensor& samples);
  // The same for texts, of a model of texts with labels: each cut to the tokens that the model reads.
  Tensor predict(const std::vector<std::string>& texts);

  std::string class_name(int64_t label) const;
  const DataSchema& schema() const { return data_.schema; }
  const Vocabulary* vocabulary() const { return data_.vocabulary.get(); }  // null where it reads no text
  const TaskSpec& task() const { return task_; }                           // with the shape of a sample
  Model& model() { return *model_; }                                       // such as for a Decoder

 private:
  Tensor normalised(const Tensor& samples) const;
  Tensor predictions_of(const Tensor& output) const;

  LikeData data_;
  TaskSpec task_;
  std::unique_ptr<Model> model_;
  DType compute_ = DType::kFloat32;
};

// Softmax of each row of logits [B, classes], in 64 bits and summed in the order of the classes: a function of the row
// alone.
std::vector<float> probabilities_of(const Tensor& logits);

}  // namespace lockstep
