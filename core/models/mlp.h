// MLP: hidden layers with ReLU on flattened inputs.
#pragma once

#include "core/base/field.h"
#include "core/models/model.h"
#include "core/nn/layers.h"

namespace lockstep {

struct MlpOptions {
  std::vector<int64_t> hidden = {128};
};
std::vector<Field> fields(MlpOptions& o);

class Mlp : public Model {
 public:
  Mlp(const MlpOptions& options, const TaskSpec& task);
  Tensor forward(const Tensor& x) override;  // [B, ...] -> [B, classes]

 private:
  std::vector<Linear*> layers_;
};

}  // namespace lockstep
