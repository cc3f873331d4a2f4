#include "core/models/resnet.h"

#include <cmath>

#include "core/ops/ops.h"

namespace lockstep {
namespace {

constexpr int64_t kExpansion = 4;  // of a bottleneck's channels

struct Depth {
  int64_t layers;
  int64_t blocks[4];
  bool bottleneck;
};
constexpr Depth kDepths[] = {{18, {2, 2, 2, 2}, false},
                             {34, {3, 4, 6, 3}, false},
                             {50, {3, 4, 6, 3}, true},
                             {101, {3, 4, 23, 3}, true},
                             {152, {3, 8, 36, 3}, true}};

// He et al., "Delving Deep into Rectifiers" (2015), by the number of outputs.
Init for_relu(int64_t out, int64_t kernel) {
  return Init::normal(std::sqrt(2.0 / static_cast<double>(out * kernel * kernel)));
}

int64_t after(int64_t extent, int64_t kernel, int64_t stride, int64_t padding) {
  return (extent + 2 * padding - kernel) / stride + 1;
}

// Multiply-adds of a sample's convolutions; `extent` follows them.
struct Counted {
  int64_t h, w;
  double products = 0;
  void conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    h = after(h, kernel, stride, kernel / 2), w = after(w, kernel, stride, kernel / 2);
    products += static_cast<double>(h * w) * static_cast<double>(in * out * kernel * kernel);
  }
};

}  // namespace

std::vector<Field> fields(ResnetOptions& o) {
  using Stem = ResnetOptions::Stem;
  return {
      field("depth", o.depth, "layers: 18, 34, 50, 101 or 152; from 50 on of bottlenecks").with_range(18, 152),
      enum_field("stem", o.stem, {{"large", Stem::kLarge}, {"small", Stem::kSmall}},
                 "large: a 7 x 7 convolution and pooling, each halving the image; small: one 3 x 3 convolution, for "
                 "images below 100 pixels or so"),
      field("width", o.width, "channels of the first stage; each later one has twice as many")
          .with_unit("channels")
          .with_range(1, 4096)};
}

ResidualBlock::ResidualBlock(int64_t in, int64_t width, int64_t stride, bool bottleneck) {
  const int64_t out = bottleneck ? width * kExpansion : width;
  const auto layer = [&](int64_t from, int64_t to, int64_t kernel, int64_t step) {
    const size_t i = layers_.size() + 1;
    auto& conv = child<Conv2d>(str("conv", i), from, to, kernel, step, kernel / 2, for_relu(to, kernel));
    layers_.emplace_back(&conv, &child<BatchNorm>(str("bn", i), to));
  };
  if (bottleneck) {
    layer(in, width, 1, 1);
    layer(width, width, 3, stride);
    layer(width, out, 1, 1);
  } else {
    layer(in, width, 3, stride);
    layer(width, out, 3, 1);
  }
  if (stride == 1 && in == out) return;
  down_ = &child<Conv2d>("downsample.0", in, out, 1, stride, 0, for_relu(out, 1));
  down_norm_ = &child<BatchNorm>("downsample.1", out);
}

Tensor ResidualBlock::forward(const Tensor& x) {
  Tensor h = x;
  for (auto& [conv, norm] : layers_) {
    h = (*conv)(h);
    if (norm == layers_.back().second) break;
    h = (*norm)(h, true);
  }
  const Tensor shortcut = down_ ? (*down_norm_)((*down_)(x)) : x;
  return (*layers_.back().second)(h, true, shortcut);
}

Resnet::Resnet(const ResnetOptions& o, const TaskSpec& task) : large_(o.stem == ResnetOptions::Stem::kLarge) {
  const Depth* depth = nullptr;
  for (const Depth& d : kDepths)
    if (d.layers == o.depth) depth = &d;
  require(depth != nullptr, ExitCode::kConfig, "model.depth: ", o.depth, " is none of 18, 34, 50, 101, 152");
  require(task.input.rank() == 3, ExitCode::kConfig, "model.name: resnet needs images [H, W, C], not samples of shape ",
          task.input);
  int64_t channels = task.input[2];
  Counted counted{task.input[0], task.input[1]};
  const int64_t kernel = large_ ? 7 : 3, stride = large_ ? 2 : 1;
  conv_ = &child<Conv2d>("conv1", channels, o.width, kernel, stride, kernel / 2, for_relu(o.width, kernel));
  counted.conv(channels, o.width, kernel, stride);
  const double of_images = counted.products;  // they take no gradient
  norm_ = &child<BatchNorm>("bn1", o.width);
  if (large_) counted.h = after(counted.h, 3, 2, 1), counted.w = after(counted.w, 3, 2, 1);
  channels = o.width;
  for (int64_t stage = 0; stage < 4; ++stage) {
    const int64_t width = o.width << stage, out = depth->bottleneck ? width * kExpansion : width;
    for (int64_t i = 0; i < depth->blocks[stage]; ++i) {
      const int64_t step = stage > 0 && i == 0 ? 2 : 1;
      blocks_.push_back(
          &child<ResidualBlock>(str("layer", stage + 1, ".", i), channels, width, step, depth->bottleneck));
      if (step > 1 || channels != out) {
        Counted shortcut{counted.h, counted.w};
        shortcut.conv(channels, out, 1, step);
        counted.products += shortcut.products;
      }
      if (depth->bottleneck) {
        counted.conv(channels, width, 1, 1);
        counted.conv(width, width, 3, step);
        counted.conv(width, out, 1, 1);
      } else {
        counted.conv(channels, width, 3, step);
        counted.conv(width, out, 3, 1);
      }
      channels = out;
    }
  }
  head_ = &child<Linear>("fc", channels, task.classes);
  // Two operations in each of a layer's three products.
  flops_ = 6 * (counted.products + static_cast<double>(channels * task.classes)) - 2 * of_images;
}

Tensor Resnet::forward(const Tensor& x) {
  Tensor h = (*norm_)((*conv_)(x), true);
  if (large_) h = max_pool2d(h, 3, 2, 1);
  for (ResidualBlock* block : blocks_) h = (*block)(h);
  return (*head_)(mean(h, {1, 2}));
}

Choice<ModelKind> resnet_choice() { return model_choice<Resnet, ResnetOptions>("resnet"); }

}  // namespace lockstep
