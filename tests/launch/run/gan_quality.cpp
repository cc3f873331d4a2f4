// How good a GAN's images are, by a classifier that was trained on the same data.
// Usage: gan_quality CLASSIFIER_RUN GAN_RUN COUNT
// Makes COUNT images with the averages of the generator's parameters and prints one JSON object: "confident", the share
// that the classifier names with a probability of at least 0.9; "least", the smallest share of a class among the names;
// "distance", the mean distance of an image's logits to those of the nearest of COUNT images of the data, divided by
// the same of COUNT other images of the data.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>

#include "core/autograd/node.h"
#include "core/io/json.h"
#include "core/models/gan.h"
#include "core/ops/ops.h"
#include "launch/app.h"
#include "launch/training/generate.h"

namespace lockstep {
namespace {

constexpr int64_t kBatch = 100;

using Rows = std::vector<std::vector<double>>;  // an image's logits each

void classify(Model& classifier, const Tensor& images, Rows& out) {
  const Tensor logits = classifier(images);
  const auto values = logits.to_vector();
  for (int64_t i = 0; i < logits.dim(0); ++i)
    out.emplace_back(values.begin() + i * logits.dim(1), values.begin() + (i + 1) * logits.dim(1));
}

Rows of_generated(Model& classifier, Gan& gan, int64_t count) {
  Rows out;
  for (int64_t i = 0; i < count; i += kBatch) {
    std::vector<int64_t> samples;
    for (int64_t k = i; k < std::min(i + kBatch, count); ++k) samples.push_back(k);
    const auto images = static_cast<int64_t>(samples.size());
    WithRandom random({1, 0, std::make_shared<const std::vector<int64_t>>(std::move(samples))});
    classify(classifier, gan(gan.noise(images, DType::kFloat32)), out);
  }
  return out;
}

Rows of_data(Model& classifier, const Dataset& data, int64_t begin, int64_t end) {
  Rows out;
  const Shape image = data.spec().input().shape;
  std::vector<float> pixels(static_cast<size_t>(image.numel()));
  int32_t label = 0;
  std::vector<void*> memory{pixels.data(), &label};
  for (int64_t i = begin; i < end; ++i) {
    data.read(0, i, memory);
    classify(classifier, Tensor::of(pixels, {1, image[0], image[1], image[2]}), out);
  }
  return out;
}

double mean_distance_to_nearest(const Rows& from, const Rows& to) {
  double sum = 0;
  for (const auto& a : from) {
    double nearest = std::numeric_limits<double>::infinity();
    for (const auto& b : to) {
      double squares = 0;
      for (size_t k = 0; k < a.size(); ++k) squares += (a[k] - b[k]) * (a[k] - b[k]);
      nearest = std::min(nearest, squares);
    }
    sum += std::sqrt(nearest);
  }
  return sum / static_cast<double>(from.size());
}

int measure(const std::string& classifier_run, const std::string& gan_run, int64_t count) {
  NoGrad no_grad;
  const Checkpoint of_classifier = open_newest(classifier_run), of_gan = open_newest(gan_run);
  const auto settings = settings_of_checkpoint(builtin(), of_classifier);
  const auto classifier = load_model(*settings, of_classifier);
  const auto gan = load_model(*settings_of_checkpoint(builtin(), of_gan), of_gan, true);
  const Datasets data = settings->source->open(settings->data, static_cast<uint64_t>(settings->seed));

  const Rows made = of_generated(*classifier, dynamic_cast<Gan&>(*gan), count);
  const Rows real = of_data(*classifier, *data.train, 0, count),
             others = of_data(*classifier, *data.train, count, 2 * count);
  std::vector<int64_t> named(made[0].size());
  int64_t confident = 0;
  for (const auto& logits : made) {
    const auto best = std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (double l : logits) total += std::exp(l - *best);
    confident += 1 / total >= 0.9;
    ++named[static_cast<size_t>(best - logits.begin())];
  }
  const auto share = [&](int64_t n) { return static_cast<double>(n) / static_cast<double>(count); };
  std::cout << json_line({{"confident", share(confident)},
                          {"least", share(*std::min_element(named.begin(), named.end()))},
                          {"distance", mean_distance_to_nearest(made, real) / mean_distance_to_nearest(others, real)}})
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
