// How good a GAN's images are, by a classifier that was trained on the same data.
// Usage: gan_quality CLASSIFIER_RUN GAN_RUN COUNT
// Makes COUNT images with the averages of the generator's parameters and prints one JSON object: "confident", the share
// that the classifier names with a probability of at least 0.9; "least", the smallest share of a class among the names;
// "distance", the mean distance of an image's logits to those of the nearest of COUNT images of the data, divided by
// the same of COUNT other images of the data; "spread", the mean distance between the pixels of two images with the
// same name, divided by that of the data: 0 where all images of a class are one.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>

#include "core/autograd/node.h"
#include "core/io/json.h"
#include "core/models/gan.h"
#include "core/ops/ops.h"
#include "launch/app.h"
#include "launch/training/weights/load_model.h"

namespace lockstep {
namespace {

constexpr int64_t kBatch = 100;

using Rows = std::vector<std::vector<double>>;

struct Images {
  Rows pixels, logits;
};

void append(const Tensor& rows, Rows& out) {
  const auto values = rows.to_vector();
  const auto width = static_cast<int64_t>(values.size()) / rows.dim(0);
  for (int64_t i = 0; i < rows.dim(0); ++i)
    out.emplace_back(values.begin() + i * width, values.begin() + (i + 1) * width);
}

void classify(Model& classifier, const Tensor& images, Images& out) {
  append(images, out.pixels);
  append(classifier(images), out.logits);
}

Images of_generated(Model& classifier, Gan& gan, int64_t count) {
  Images out;
  for (int64_t i = 0; i < count; i += kBatch) {
    std::vector<int64_t> samples;
    for (int64_t k = i; k < std::min(i + kBatch, count); ++k) samples.push_back(k);
    const auto images = static_cast<int64_t>(samples.size());
    WithRandom random({1, 0, std::make_shared<const std::vector<int64_t>>(std::move(samples))});
    classify(classifier, gan(gan.latents(images, DType::kFloat32)), out);
  }
  return out;
}

Images of_data(Model& classifier, const Dataset& data, int64_t begin, int64_t end) {
  Images out;
  const Shape image = data.spec().input().shape;
  std::vector<float> pixels(static_cast<size_t>(image.numel()));
  int32_t label = 0;
  std::vector<void*> memory{pixels.data(), &label};
  for (int64_t i = begin; i < end; ++i) {
    data.read(0, i, {data.spec().tensors, memory});
    classify(classifier, Tensor::of(pixels, {1, image[0], image[1], image[2]}), out);
  }
  return out;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0;
  for (size_t k = 0; k < a.size(); ++k) squares += (a[k] - b[k]) * (a[k] - b[k]);
  return std::sqrt(squares);
}

double mean_distance_to_nearest(const Rows& from, const Rows& to) {
  double sum = 0;
  for (const auto& a : from) {
    double nearest = std::numeric_limits<double>::infinity();
    for (const auto& b : to) nearest = std::min(nearest, distance(a, b));
    sum += nearest;
  }
  return sum / static_cast<double>(from.size());
}

size_t name_of(const std::vector<double>& logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The mean distance between two images with one name.
double spread(const Images& images) {
  double sum = 0;
  int64_t pairs = 0;
  for (size_t a = 0; a < images.pixels.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      if (name_of(images.logits[a]) == name_of(images.logits[b]))
        sum += distance(images.pixels[a], images.pixels[b]), ++pairs;
  return pairs > 0 ? sum / static_cast<double>(pairs) : 0;
}

int measure(const std::string& classifier_run, const std::string& gan_run, int64_t count) {
  NoGrad no_grad;
  const Checkpoint of_classifier = open_newest(classifier_run), of_gan = open_newest(gan_run);
  const auto settings = settings_of_checkpoint(builtin(), of_classifier);
  const auto classifier = load_model(*settings, of_classifier);
  const auto gan = load_model(*settings_of_checkpoint(builtin(), of_gan), of_gan, true);
  const Datasets data = settings->source->open(settings->data, static_cast<uint64_t>(settings->seed));

  const Images made = of_generated(*classifier, dynamic_cast<Gan&>(*gan), count);
  const Images real = of_data(*classifier, *data.train, 0, count),
               others = of_data(*classifier, *data.train, count, 2 * count);
  std::vector<int64_t> named(made.logits[0].size());
  int64_t confident = 0;
  for (const auto& logits : made.logits) {
    const size_t best = name_of(logits);
    double total = 0;
    for (double l : logits) total += std::exp(l - logits[best]);
    confident += 1 / total >= 0.9;
    ++named[best];
  }
  const auto share = [&](int64_t n) { return static_cast<double>(n) / static_cast<double>(count); };
  std::cout << json_line({{"confident", share(confident)},
                          {"least", share(*std::min_element(named.begin(), named.end()))},
                          {"distance", mean_distance_to_nearest(made.logits, real.logits) /
                                           mean_distance_to_nearest(others.logits, real.logits)},
                          {"spread", spread(made) / spread(real)}})
            << "\n";
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  try {
    return lockstep::measure(argv[1], argv[2], std::stoll(argv[3]));
  } catch (const std::exception& e) {
    std::cerr << "gan_quality: " << e.what() << "\n";
    return 1;
  }
}
