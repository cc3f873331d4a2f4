#include <algorithm>
#include <cmath>

#include "core/models/convnet.h"
#include "core/models/gpt.h"
#include "core/models/mlp.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

Tensor Model::loss(Tensor output, const Tensor& target) { return cross_entropy(std::move(output), target); }

int64_t count_correct(const Tensor& output, const Tensor& target) {
  if (output.rank() == 0 || !is_floating(output.dtype()) || target.dtype() != DType::kInt32 ||
      !output.is_contiguous() || output.numel() != target.numel() * output.dim(-1))
    return -1;
  const int64_t classes = output.dim(-1);
  const Tensor logits = raw::to_host(raw::cast(output.detach(), DType::kFloat32)), targets = raw::to_host(target);
  const float* values = logits.values<float>();
  const int32_t* wanted = targets.values<int32_t>();
  int64_t correct = 0;
  for (int64_t i = 0; i < target.numel(); ++i) {
    if (wanted[i] == kIgnoreIndex) continue;
    const float* row = values + i * classes;
    correct += std::max_element(row, row + classes) - row == wanted[i];
  }
  return correct;
}

std::vector<Field> fields(MlpOptions& o) {
  return {field("hidden", o.hidden, "widths of the hidden layers").with_unit("features").at_least(1)};
}

Mlp::Mlp(const MlpOptions& options, const TaskSpec& task) {
  int64_t in = task.input.numel(), index = 0;
  for (int64_t width : options.hidden) {
    layers_.push_back(&child<Linear>(cat("layers.", index++), in, width));
    in = width;
  }
  layers_.push_back(&child<Linear>("head", in, task.classes));
}

Tensor Mlp::forward(const Tensor& x) {
  Tensor h = reshape(x, {x.dim(0), -1});
  for (Linear* layer : layers_) h = layer == layers_.back() ? (*layer)(h) : relu((*layer)(h));
  return h;
}

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
    convs_.push_back(&child<Conv2d>(cat("conv", ++index), c, channels, o.kernel));
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
  for (Conv2d* conv : convs_) h = relu((*conv)(h));
  h = max_pool2d(h, 2, 2);
  h = relu((*hidden_)(reshape(h, {h.dim(0), -1})));
  return (*head_)((*dropout_)(h));
}

std::vector<Field> fields(GptOptions& o) {
  return {
      field("layers", o.layers, "transformer blocks").with_range(1, 1000),
      field("heads", o.heads, "attention heads; must divide the width").with_range(1, 1024),
      field("width", o.width, "features of a token").with_unit("features").with_range(1, 65536),
      field("dropout", o.dropout, "probability of dropping a feature after the embedding and in each residual branch")
          .with_range(0, 0.99),
      field("bias", o.bias, "biases in linear layers and norms")};
}

namespace {
Init weights() { return Init::normal(0.02); }
// Each block adds two branches to the residual stream: scaled so that its variance does not grow with depth.
Init branch_end(const GptOptions& o) { return Init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(o.layers))); }
}  // namespace

GptBlock::GptBlock(const GptOptions& o)
    : heads_(o.heads),
      ln1_(child<LayerNorm>("ln1", o.width, o.bias)),
      ln2_(child<LayerNorm>("ln2", o.width, o.bias)),
      qkv_(child<Linear>("qkv", o.width, 3 * o.width, o.bias, weights())),
      proj_(child<Linear>("proj", o.width, o.width, o.bias, branch_end(o))),
      up_(child<Linear>("up", o.width, 4 * o.width, o.bias, weights())),
      down_(child<Linear>("down", 4 * o.width, o.width, o.bias, branch_end(o))),
      drop1_(child<Dropout>("drop1", o.dropout)),
      drop2_(child<Dropout>("drop2", o.dropout)) {}

int GptBlock::recompute_attention(bool on) {
  attend_again_ = on;
  return 1;
}

Tensor GptBlock::attend(const Tensor& x_BTC) { return proj_(causal_attention(qkv_(ln1_(x_BTC)), heads_)); }

Tensor GptBlock::forward(const Tensor& x_BTC) {
  const Tensor attended = attend_again_ ? recomputed(x_BTC, trainable({&ln1_, &qkv_, &proj_}),
                                                     [this](const Tensor& x) { return attend(x); })
                                        : attend(x_BTC);
  const auto [x, normed] = ln2_.of_sum(x_BTC, drop1_(attended));
  return add(x, drop2_(feed_forward(normed, up_.weight(), up_.bias(), down_.weight(), down_.bias())));
}

Gpt::Gpt(const GptOptions& o, const TaskSpec& task)
    : context_(task.input.rank() == 1 ? task.input[0] : 0),
      wte_(child<Embedding>("wte", task.classes, o.width, weights())),
      wpe_(child<Embedding>("wpe", context_, o.width, weights())),
      drop_(child<Dropout>("drop", o.dropout)) {
  require(task.input.rank() == 1, ExitCode::kConfig, "model.name: gpt needs tokens, not samples of shape ", task.input);
  require(o.width % o.heads == 0, ExitCode::kConfig, "model.heads: ", o.heads,
          " does not divide model.width: ", o.width);
  for (int64_t i = 0; i < o.layers; ++i) blocks_.push_back(&child<GptBlock>(cat("blocks.", i), o));
  ln_ = &child<LayerNorm>("ln", o.width, o.bias);
}

Tensor Gpt::forward(const Tensor& tokens_BT) {
  check(tokens_BT.rank() == 2 && tokens_BT.dim(1) <= context_, "gpt: tokens ", tokens_BT, " for a context of ",
        context_);
  Tensor h = drop_(add(wte_(tokens_BT), slice(wpe_.weight(), 0, 0, tokens_BT.dim(1))));
  for (GptBlock* block : blocks_) h = (*block)(h);
  return linear((*ln_)(h), wte_.weight());
}

double Gpt::flops() const {
  int64_t n = 0;
  for (const NamedParameter& p : parameters()) n += p.parameter->value.numel();
  const auto blocks = static_cast<int64_t>(blocks_.size());
  return static_cast<double>(context_) * 6 * static_cast<double>(n + blocks * wte_.weight().dim(1) * context_);
}

}  // namespace lockstep
