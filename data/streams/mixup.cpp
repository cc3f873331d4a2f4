#include "data/streams/mixup.h"

#include <cmath>
#include <numbers>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "data/images/augment.h"
#include "data/samples/sample_buffer.h"

namespace lockstep {
namespace {

constexpr int kMostDraws = 10000;  // far more than any alpha needs

// x^p for x in (0, 1) and p > 0 from sums and products alone: the last bits of a C library's own differ between
// releases and processors.
double power(double x, double p) {
  int exponent = 0;
  const double m = std::frexp(x, &exponent), z = (m - 1) / (m + 1);
  double log = 0, odd = z;
  for (int n = 1; n < 40; n += 2, odd *= z * z) log += 2 * odd / n;
  const double y = p * (log + exponent * std::numbers::ln2);
  if (y < -700) return 0;
  const double whole = std::floor(y / std::numbers::ln2), rest = y - whole * std::numbers::ln2;
  double sum = 1, term = 1;
  for (int n = 1; n < 25; ++n) sum += term *= rest / n;
  return std::ldexp(sum, static_cast<int>(whole));
}

struct Partner {
  int64_t index;
  int32_t share;  // of kShareUnit
};

// By the method of Joehnk, "Erzeugung von betaverteilten und gammaverteilten Zufallszahlen" (1964).
Partner partner_of(int64_t size, double alpha, uint64_t seed, int64_t epoch, int64_t index) {
  const uint64_t key = mix(mix(mix(seed, 0x6d69787570), static_cast<uint64_t>(epoch)), static_cast<uint64_t>(index));
  const auto draw = [&](int i) { return philox(key, static_cast<uint64_t>(i), 0); };
  const Philox4 first = draw(0);
  const uint64_t bits = uint64_t{first.v[0]} << 32 | first.v[1];
  Partner out{static_cast<int64_t>(bits % static_cast<uint64_t>(size)), 0};
  for (int i = 1; i < kMostDraws; ++i) {
    const Philox4 now = draw(i);
    const double u = (now.v[0] + 0.5) * 0x1p-32, v = (now.v[1] + 0.5) * 0x1p-32;
    const double x = power(u, 1 / alpha), y = power(v, 1 / alpha);
    if (x + y > 1) continue;
    const double share = x + y > 0 ? x / (x + y) : u > v ? 1 : 0;
    out.share = static_cast<int32_t>(share * kShareUnit + 0.5);
    break;
  }
  return out;
}

}  // namespace

Mixup::Mixup(std::shared_ptr<const Dataset> data, double alpha, uint64_t seed)
    : data_(std::move(data)), alpha_(alpha), seed_(seed), spec_(data_->spec()) {
  check(alpha > 0 && alpha <= kMostMixup, "mixup with alpha ", alpha);
  const TensorSpec *labels = spec_.find(kLabels), *numbers = spec_.find(kTargets);
  require(spec_.input().dtype == DType::kFloat32 && (labels ? labels->shape.rank() == 0 : numbers != nullptr),
          ExitCode::kConfig,
          "data.augment.mixup is set, but it is for images and rows of tables that have one label or number each");
  require(
      !spec_.find(kSampleWeights), ExitCode::kConfig,
      "data.augment.mixup is set, but the samples have weights, which mixtures of two have no rule for: leave it out, "
      "or import the data without --weight");
  if (!labels) return;
  spec_.tensors.push_back({std::string(kOtherLabels), DType::kInt32, {}});
  spec_.tensors.push_back({std::string(kOtherShare), DType::kInt32, {}});
}

void Mixup::read(int64_t epoch, int64_t index, SampleMemory sample) const {
  const std::vector<TensorSpec>& tensors = data_->spec().tensors;
  const Partner partner = partner_of(size(), alpha_, seed_, epoch, index);
  data_->read(epoch, index, sample.first(tensors.size()));
  const SampleBuffer other(tensors);
  data_->read(epoch, partner.index, other.memory());
  const float of_other = static_cast<float>(partner.share) / kShareUnit, of_own = 1 - of_other;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (t > 0 && tensors[t].name != kTargets) continue;
    float* own = static_cast<float*>(sample[t]);
    const float* from = static_cast<const float*>(other[t]);
    for (int64_t i = 0; i < tensors[t].shape.numel(); ++i) own[i] = of_own * own[i] + of_other * from[i];
  }
  if (tensors.size() == spec_.tensors.size()) return;
  const auto labels = static_cast<size_t>(data_->spec().find(kLabels) - tensors.data());
  *static_cast<int32_t*>(sample[tensors.size()]) = *static_cast<const int32_t*>(other[labels]);
  *static_cast<int32_t*>(sample[tensors.size() + 1]) = partner.share;
}

}  // namespace lockstep
