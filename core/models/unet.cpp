#include "core/models/unet.h"

#include <cmath>

#include "core/ops/ops.h"

namespace lockstep {
namespace {

Init unet_weights(int64_t out) { return Init::normal(std::sqrt(2.0 / static_cast<double>(9 * out))); }

}  // namespace

std::vector<Field> fields(UnetOptions& o) {
  return {
      field("levels", o.levels, "times that the image is halved; its height and width must be multiples of 2^levels")
          .with_range(1, 10),
      field("width", o.width, "channels at full size; each level below has twice as many")
          .with_unit("channels")
          .with_range(1, 4096)};
}

UnetBlock::UnetBlock(int64_t in, int64_t out)
    : conv1_(child<Conv2d>("conv1", in, out, 3, 1, 1, unet_weights(out))),
      conv2_(child<Conv2d>("conv2", out, out, 3, 1, 1, unet_weights(out))),
      norm1_(child<BatchNorm>("bn1", out)),
      norm2_(child<BatchNorm>("bn2", out)) {}

Tensor UnetBlock::forward(const Tensor& x) { return norm2_(conv2_(norm1_(conv1_(x), true)), true); }

Unet::Unet(const UnetOptions& o, const TaskSpec& task) {
  require(task.input.rank() == 3, ExitCode::kConfig, "model.name: unet needs images [H, W, C], not samples of shape ",
          task.input);
  const int64_t factor = int64_t(1) << o.levels;
  require(task.input[0] % factor == 0 && task.input[1] % factor == 0, ExitCode::kConfig, "model.levels: ", o.levels,
          " halvings of images of ", task.input, ": height and width must be multiples of ", factor);
  double products = 0;  // of a sample's convolutions
  const auto block = [&](const std::string& name, int64_t in, int64_t out, int64_t level) {
    products += static_cast<double>((task.input[0] >> level) * (task.input[1] >> level) * 9 * out * (in + out));
    return &child<UnetBlock>(name, in, out);
  };
  int64_t channels = task.input[2];
  for (int64_t level = 0; level <= o.levels; ++level) {
    const int64_t width = o.width << level;
    down_.push_back(block(str("down", level), channels, width, level));
    channels = width;
  }
  for (int64_t level = o.levels - 1; level >= 0; --level) {
    const int64_t width = o.width << level;
    up_.push_back(&child<ConvTranspose2d>(str("up", level), channels, width, 2, 2));
    products += static_cast<double>((task.input[0] >> level) * (task.input[1] >> level) * channels * width);
    join_.push_back(block(str("join", level), 2 * width, width, level));
    channels = width;
  }
  head_ = &child<Conv2d>("head", channels, task.classes, 1);
  flops_ = 6 * products;
}

Tensor Unet::forward(const Tensor& x) {
  std::vector<Tensor> levels;
  Tensor h = x;
  for (UnetBlock* block : down_) {
    if (!levels.empty()) h = max_pool2d(h, 2, 2);
    h = (*block)(h);
    levels.push_back(h);
  }
  levels.pop_back();
  for (size_t i = 0; i < up_.size(); ++i) {
    h = (*join_[i])(concat({levels.back(), (*up_[i])(h)}, -1));
    levels.pop_back();
  }
  return (*head_)(h);
}

Choice<ModelKind> unet_choice() { return model_choice<Unet, UnetOptions>("unet"); }

}  // namespace lockstep
