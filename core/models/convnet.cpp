#include "core/models/convnet.h"

#include "core/ops/ops.h"

namespace lockstep {

std::vector<Field> fields(ConvnetOptions& o) {
  return {field("channels", o.channels, "output channels of each convolution; pooling follows the last")
              .with_unit("channels")
              .at_least(1),
          field("kernel", o.kernel, "extent of the convolutions' windows").with_unit("pixels").with_range(1, 15),
          field("hidden", o.hidden, "width of the layer before the head").with_unit("features").at_least(1),
          field("dropout", o.dropout, "probability of dropping a feature before the head").with_range(0, 0.99)};
}

Convnet::Convnet(const ConvnetOptions& o, const TaskSpec& task) {
  require(task.input.rank() == 3, ExitCode::kConfig,
          "model.name: convnet needs images [H, W, C], not samples of shape ", task.input);
  int64_t h = task.input[0], w = task.input[1], c = task.input[2], index = 0;
  for (int64_t channels : o.channels) {
    convs_.push_back(&child<Conv2d>(str("conv", ++index), c, channels, o.kernel));
    h -= o.kernel - 1, w -= o.kernel - 1;
    // Two operations in each of a layer's three products; images take no gradient.
    flops_ += 2.0 * (index == 1 ? 2 : 3) * static_cast<double>(h * w * o.kernel * o.kernel * c * channels);
    c = channels;
  }
  require(h >= 2 && w >= 2, ExitCode::kConfig, "model.channels, model.kernel: images of ", task.input,
          " are too small for these convolutions");
  const int64_t features = (h / 2) * (w / 2) * c;
  flops_ += 6.0 * static_cast<double>((features + task.classes) * o.hidden);
  hidden_ = &child<Linear>("fc1", features, o.hidden);
  dropout_ = &child<Dropout>("drop", o.dropout);
  head_ = &child<Linear>("fc2", o.hidden, task.classes);
}

Tensor Convnet::forward(const Tensor& x) {
  Tensor h = x;
  for (Conv2d* conv : convs_) {
    h = (*conv)(h);
    if (conv == convs_.back()) h = max_pool2d(h, 2, 2);  // before relu: the same values from a quarter of the elements
    h = relu(h);
  }
  h = relu((*hidden_)(reshape(h, {h.dim(0), -1})));
  return (*head_)((*dropout_)(h));
}

Choice<ModelKind> convnet_choice() { return model_choice<Convnet, ConvnetOptions>("convnet"); }

}  // namespace lockstep
