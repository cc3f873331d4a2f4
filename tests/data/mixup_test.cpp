// Mixup: what a mixture is made of, how its share is drawn, and that it is a function of seed, epoch and sample.
#include "data/streams/mixup.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "data/streams/synthetic.h"
#include "tests/support/files.h"

namespace lockstep::mixup_test {
namespace {

using namespace test;

constexpr int64_t kSamples = 2000;

// A sample is its index, its label its index modulo 7.
class Indices final : public Dataset {
 public:
  explicit Indices(std::string_view target = kLabels) {
    const DType type = target == kLabels ? DType::kInt32 : DType::kFloat32;
    spec_ = {{{"features", DType::kFloat32, {2}}, {std::string(target), type, {}}}, 7};
  }
  int64_t size() const override { return kSamples; }
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return {}; }
  void read(int64_t, int64_t index, SampleMemory sample) const override {
    static_cast<float*>(sample[0])[0] = static_cast<float>(index);
    static_cast<float*>(sample[0])[1] = static_cast<float>(-index);
    if (spec_.find(kLabels)) *static_cast<int32_t*>(sample[1]) = static_cast<int32_t>(index % 7);
    else *static_cast<float*>(sample[1]) = static_cast<float>(3 * index);
  }
  const Vocabulary* vocabulary() const override { return nullptr; }

 private:
  DataSpec spec_;
};

struct Mixed {
  std::array<float, 2> features;
  int32_t label, other, share;
};

Mixed read(const Mixup& data, int64_t epoch, int64_t index) {
  Mixed out;
  data.read(epoch, index,
            {data.spec().tensors, std::array<void*, 4>{out.features.data(), &out.label, &out.other, &out.share}});
  return out;
}

TEST(Mixup, MixesTwoSamplesAndTellsTheSecondLabel) {
  const Mixup data(std::make_shared<Indices>(), 1, 5);
  EXPECT_EQ(data.spec().tensors.size(), 4u);
  std::set<int64_t> partners;
  for (int64_t i = 0; i < kSamples; ++i) {
    const Mixed m = read(data, 0, i);
    ASSERT_EQ(m.label, i % 7);
    ASSERT_TRUE(m.share >= 0 && m.share <= kShareUnit);
    EXPECT_EQ(m.features[0], -m.features[1]);
    const double share = static_cast<double>(m.share) / kShareUnit;
    if (share < 0.01) continue;
    const double partner = (m.features[0] - (1 - share) * static_cast<double>(i)) / share;
    ASSERT_NEAR(partner, std::round(partner), 0.1) << i;
    ASSERT_TRUE(partner > -0.5 && partner < kSamples) << i;
    EXPECT_EQ(std::lround(partner) % 7, m.other);
    partners.insert(std::lround(partner));
  }
  EXPECT_GT(partners.size(), kSamples / 2);
}

// Beta(a, a) has the mean 1/2 and the variance 1 / (4 (2 a + 1)).
TEST(Mixup, SharesHaveTheBetaDistribution) {
  for (const double alpha : {0.1, 0.4, 1.0, 4.0}) {
    const Mixup data(std::make_shared<Indices>(), alpha, 3);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < kSamples; ++i) {
      const double share = static_cast<double>(read(data, 1, i).share) / kShareUnit - 0.5;
      sum += share, squares += share * share;
    }
    EXPECT_NEAR(sum / kSamples, 0, 0.04) << alpha;
    EXPECT_NEAR(squares / kSamples, 1 / (4 * (2 * alpha + 1)), 0.012) << alpha;
  }
}

// Any machine, compiler and release gives these bits.
TEST(Mixup, IsAFunctionOfSeedEpochAndSample) {
  const auto hash = [](uint64_t seed, int64_t epoch) {
    const Mixup data(std::make_shared<Indices>(), 0.3, seed);
    Hasher128 hasher;
    for (int64_t i = 0; i < 100; ++i) {
      const Mixed m = read(data, epoch, i);
      hasher.update(&m, sizeof m);
    }
    return to_hex(hasher.digest());
  };
  EXPECT_EQ(hash(1, 0), "be4aaba2ec2db556c15b5bf4ab5300bb");
  EXPECT_NE(hash(1, 0), hash(1, 1));
  EXPECT_NE(hash(1, 0), hash(2, 0));
}

TEST(Mixup, OfARegressionTheTargetsAreMixed) {
  const Mixup data(std::make_shared<Indices>(kTargets), 1, 5);
  EXPECT_EQ(data.spec().tensors.size(), 2u);
  for (int64_t i = 0; i < 50; ++i) {
    std::array<float, 2> features;
    float target;
    data.read(0, i, {data.spec().tensors, std::array<void*, 2>{features.data(), &target}});
    EXPECT_NEAR(target, 3 * features[0], 1e-2);
  }
}

TEST(Mixup, RefusesSamplesWithoutOneTarget) {
  const DataOptions::Synthetic o{.images = 10};
  expect_error(ExitCode::kConfig, {"data.augment.mixup", "one label"}, [&] {
    Mixup(std::make_shared<SyntheticShapes>(o, IndexRange{0, 10}), 1, 1);
  });
}

}  // namespace
}  // namespace lockstep::mixup_test
