#include "core/models/mlp.h"

#include "core/ops/ops.h"

namespace lockstep {

std::vector<Field> fields(MlpOptions& o) {
  return {field("hidden", o.hidden, "widths of the hidden layers").with_unit("features").at_least(1)};
}

Mlp::Mlp(const MlpOptions& options, const TaskSpec& task) {
  int64_t in = task.input.numel(), index = 0;
  for (int64_t width : options.hidden) {
    layers_.push_back(&child<Linear>(str("layers.", index++), in, width));
    in = width;
  }
  layers_.push_back(&child<Linear>("head", in, task.classes));
}

Tensor Mlp::forward(const Tensor& x) {
  Tensor h = reshape(x, {x.dim(0), -1});
  for (Linear* layer : layers_) h = layer == layers_.back() ? (*layer)(h) : relu((*layer)(h));
  return h;
}

Choice<ModelKind> mlp_choice() { return model_choice<Mlp, MlpOptions>("mlp"); }

}  // namespace lockstep
