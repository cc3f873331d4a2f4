// Generative adversarial network of convolutions: a generator makes images of noise, a discriminator tells them from
// the data's, and each step trains one after the other. Goodfellow et al., "Generative adversarial nets" (2014); layers
// of Radford et al., "Unsupervised representation learning with deep convolutional generative adversarial networks"
// (2015); a discriminator that also tells the data's classes apart: Salimans et al., "Improved techniques for training
// GANs" (2016), section 5.
#pragma once

#include <vector>

#include "core/base/field.h"
#include "core/models/model.h"
#include "core/nn/layers.h"

namespace lockstep {

struct GanOptions {
  int64_t latent = 64;  // numbers that an image is made of
  int64_t width = 32;   // channels at half the image's size; twice as many at a quarter
  double low = -1;      // of the images' values, which tanh reaches
  double high = 1;
  double dropout = 0;     // of the discriminator
  bool classify = false;  // the discriminator tells the classes of the data's images apart, too
};
std::vector<Field> fields(GanOptions& o);

// Latents [B, latent] -> images [B, H, W, C].
class GanGenerator : public ModuleOf<Tensor> {
 public:
  GanGenerator(const GanOptions& options, const Shape& image);
  Tensor forward(const Tensor& latents) override;

 private:
  Shape image_;
  int64_t channels_;
  double scale_, shift_;
  Linear& linear_;
  BatchNorm &norm1_, &norm2_;
  ConvTranspose2d &up1_, &up2_;
};

// Images [B, H, W, C] -> logits [B, K + 1]: of an image of each of the data's K classes, and of one that was generated.
class GanDiscriminator : public ModuleOf<Tensor> {
 public:
  GanDiscriminator(const GanOptions& options, const Shape& image, int64_t classes);
  Tensor forward(const Tensor& images) override;

 private:
  Conv2d &conv1_, &conv2_;
  BatchNorm& norm_;
  Linear& linear_;
  Dropout& drop_;
};

// The two networks, which core/tasks/gan.cpp trains. All of the data is one class unless the options ask for those of
// its labels.
class Gan : public Model {
 public:
  Gan(const GanOptions& options, const TaskSpec& task);
  std::vector<TensorNeed> reads() const override;
  std::string task() const override { return "gan"; }
  Tensor forward(const Tensor& latents) override;  // the generator's
  // What the discriminator says of as many generated images as there are, [B, H, W, C], and, before these, of the
  // images themselves, where `both`: [B, K + 1] or [2 B, K + 1].
  Tensor judged(const Tensor& images, bool both);
  int64_t classes() const { return classes_; }  // of the data's images: K
  bool labelled() const { return labelled_; }   // by the data's labels
  GanDiscriminator& discriminator() { return discriminator_; }
  GanGenerator& generator() { return generator_; }
  // Latent vectors for `count` images in `type`: standard normal numbers, of the samples in context().random.
  Tensor latents(int64_t count, DType type) const;

 private:
  int64_t latent_;
  int64_t classes_;
  bool labelled_;
  GanDiscriminator& discriminator_;
  GanGenerator& generator_;
};

}  // namespace lockstep
