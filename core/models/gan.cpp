#include "core/models/gan.h"

namespace lockstep {
namespace {

constexpr double kSlope = 0.2;  // of the discriminator's leaky relu

Init gan_weights() { return Init::normal(0.02); }

Tensor leaky(const Tensor& x) { return leaky_relu(x, kSlope); }

Tensor quarter_of(const Shape& image, int64_t images, int64_t channels, const Tensor& x) {
  return reshape(x, {images, image[0] / 4, image[1] / 4, channels});
}

// The shape of the task's images, which fit the model.
const Shape& image_of(const GanOptions& o, const TaskSpec& task) {
  require(
      task.input.rank() == 3 && task.input[0] % 4 == 0 && task.input[1] % 4 == 0, ExitCode::kConfig,
      "model.name: gan needs images [H, W, C], with height and width that are multiples of 4, not samples of shape ",
      task.input);
  require(!o.classify || !task.regression, ExitCode::kConfig,
          "model.classify: the data has numbers to be predicted, not labels");
  require(o.low < o.high, ExitCode::kConfig, "model.low: ", o.low, " must be below model.high, ", o.high);
  return task.input;
}

}  // namespace

std::vector<TensorNeed> Gan::reads() const { return {{"images", TensorNeed::Type::kFloating, 3}}; }

std::vector<Field> fields(GanOptions& o) {
  return {
      field("latent", o.latent, "random numbers that an image is made of").with_range(1, 65536),
      field("width", o.width, "channels of the layers at half the image's size; those at a quarter have twice as many")
          .with_unit("channels")
          .with_range(1, 4096),
      field("low", o.low, "lowest value of a generated pixel; data is normalised by its mean and deviation"),
      field("high", o.high, "highest value of a generated pixel"),
      field("dropout", o.dropout, "probability of dropout after the discriminator's convolutions").with_range(0, 0.9),
      field("classify", o.classify, "the discriminator learns the labels of the data's images, too")
          .without_effect_at_default()};
}

GanGenerator::GanGenerator(const GanOptions& o, const Shape& image)
    : image_(image),
      channels_(2 * o.width),
      scale_((o.high - o.low) / 2),
      shift_((o.high + o.low) / 2),
      linear_(child<Linear>("linear", o.latent, channels_ * (image[0] / 4) * (image[1] / 4), true, gan_weights())),
      norm1_(child<BatchNorm>("bn1", channels_)),
      norm2_(child<BatchNorm>("bn2", o.width)),
      up1_(child<ConvTranspose2d>("up1", channels_, o.width, 4, 2, 1)),
      up2_(child<ConvTranspose2d>("up2", o.width, image[2], 4, 2, 1)) {}

Tensor GanGenerator::forward(const Tensor& latents) {
  const Tensor seed = norm1_(quarter_of(image_, latents.dim(0), channels_, linear_(latents)), true);
  return affine(tanh(up2_(norm2_(up1_(seed), true))), scale_, shift_);
}

GanDiscriminator::GanDiscriminator(const GanOptions& o, const Shape& image, int64_t classes)
    : conv1_(child<Conv2d>("conv1", image[2], o.width, 4, 2, 1, gan_weights())),
      conv2_(child<Conv2d>("conv2", o.width, 2 * o.width, 4, 2, 1, gan_weights())),
      norm_(child<BatchNorm>("bn", 2 * o.width)),
      linear_(child<Linear>("linear", 2 * o.width * (image[0] / 4) * (image[1] / 4), classes + 1, true, gan_weights())),
      drop_(child<Dropout>("drop", o.dropout)) {}

Tensor GanDiscriminator::forward(const Tensor& images) {
  const Tensor x = drop_(leaky(norm_(conv2_(drop_(leaky(conv1_(images)))))));
  return linear_(reshape(x, {images.dim(0), -1}));
}

Gan::Gan(const GanOptions& o, const TaskSpec& task)
    : latent_(o.latent),
      classes_(o.classify ? task.classes : 1),
      labelled_(o.classify),
      discriminator_(child<GanDiscriminator>("discriminator", o, image_of(o, task), classes_)),
      generator_(child<GanGenerator>("generator", o, task.input)) {}

Tensor Gan::latents(int64_t count, DType type) const { return randn({count, latent_}, random_site("noise"), type); }

Tensor Gan::forward(const Tensor& latents) { return generator_(latents); }

Tensor Gan::judged(const Tensor& images, bool both) {
  return surrounded([&] {
    const Tensor generated = generator_(latents(images.dim(0), images.dtype()));
    if (!both) return discriminator_(generated);
    // Apart, for batch norm: each has statistics of its own.
    const Tensor of_real = discriminator_(images);
    return concat({of_real, discriminator_(generated)}, 0);
  });
}

Choice<ModelKind> gan_choice() { return model_choice<Gan, GanOptions>("gan"); }

}  // namespace lockstep
