#include "core/models/vit.h"

#include "core/ops/ops.h"

namespace lockstep {

std::vector<Field> fields(VitOptions& o) {
  return {
      field("patch", o.patch, "height and width of a patch; must divide those of the images")
          .with_unit("pixels")
          .with_range(1, 1024),
      field("layers", o.layers, "transformer blocks").with_range(1, 1000),
      field("heads", o.heads, "attention heads; must divide the width").with_range(1, 1024),
      field("width", o.width, "features of a patch").with_unit("features").with_range(1, 65536),
      field("dropout", o.dropout, "probability of dropping a feature after the embedding and in each residual branch")
          .with_range(0, 0.99),
      gelu_field(o.gelu),
      field("norm_eps", o.norm_eps, "added to the variance in norms").with_range(0, 1).without_effect_at_default()};
}

Vit::Vit(const VitOptions& o, const TaskSpec& task)
    : class_token_(table("class_token", {1, 1, o.width}, Init::zeros())) {
  require(task.input.rank() == 3, ExitCode::kConfig, "model.name: vit needs images [H, W, C], not samples of shape ",
          task.input);
  require(task.input[0] % o.patch == 0 && task.input[1] % o.patch == 0, ExitCode::kConfig, "model.patch: ", o.patch,
          " does not divide height and width of images of ", task.input);
  require(o.width % o.heads == 0, ExitCode::kConfig, "model.heads: ", o.heads,
          " does not divide model.width: ", o.width);
  const int64_t patches = task.input[0] / o.patch * (task.input[1] / o.patch), count = patches + 1;
  patches_ = &child<Conv2d>("patches", task.input[2], o.width, o.patch, o.patch);
  positions_ = &child<Embedding>("positions", count, o.width, Init::normal(0.02));
  drop_ = &child<Dropout>("drop", o.dropout);
  for (int64_t i = 0; i < o.layers; ++i)
    blocks_.push_back(&child<TransformerBlock>(
        str("blocks.", i), TransformerBlock::Options{o.heads, o.width, o.dropout, true, o.norm_eps, o.gelu}));
  norm_ = &child<LayerNorm>("ln", o.width, true, o.norm_eps);
  head_ = &child<Linear>("head", o.width, task.classes);
  flops_ = 6 * static_cast<double>(count * o.layers) * TransformerBlock::products(o.width, count) +
           4 * static_cast<double>(task.input.numel() * o.width) + 6 * static_cast<double>(o.width * task.classes);
}

Tensor Vit::forward(const Tensor& x) {
  const Tensor patches = (*patches_)(x);
  const int64_t images = x.dim(0), width = patches.dim(3);
  const Tensor all = concat({expand(cast(class_token_, patches.dtype()), {images, 1, width}),
                             reshape(patches, {images, patches.dim(1) * patches.dim(2), width})},
                            1);
  Tensor h = (*drop_)(add(all, positions_->weight()));
  for (TransformerBlock* block : blocks_) h = (*block)(h, {});
  h = (*norm_)(slice(h, 1, 0, 1));
  return (*head_)(reshape(h, {images, width}));
}

Choice<ModelKind> vit_choice() { return model_choice<Vit, VitOptions>("vit"); }

}  // namespace lockstep
