// Statistics of watched modules and parameters, against values that are written down here.
#include "launch/training/guards/value_watch.h"

#include <cmath>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "core/tensor/raw_ops.h"
#include "tests/support/run_ranks.h"

namespace lockstep::value_watch_test {
namespace {

class Gives : public ModuleOf<Tensor> {
 public:
  Gives() { parameter("weight", {2}, {}); }
  Tensor forward(const Tensor& x) override { return x; }
};
class Two : public ModuleOf<Tensor, Tensor> {
 public:
  Two() : a(child<Gives>("a")), b(child<Gives>("b")) {}
  Tensor forward(const Tensor& x, const Tensor& y) override { return a(x), b(y); }
  Gives &a, &b;
};

Tensor of(const std::vector<float>& values) {
  const Tensor t = Tensor::zeros({static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.mutable_values<float>());
  return t;
}

TEST(ValueWatch, CountsWhatIsGiven) {
  const float inf = std::numeric_limits<float>::infinity();
  std::map<std::string, double> seen;
  std::map<std::string, ValueWatch::Spread> spreads;
  testing::run_ranks(2, [&](Communicator& comm) {
    Two model;
    model.name_tree();
    ValueWatch watch({"*"}, 5, model, comm, comm.rank() == 0);
    EXPECT_TRUE(watch.is_due(10));
    EXPECT_FALSE(watch.is_due(11));
    watch.begin_passes();
    watch.begin_micro(comm.rank());
    model(comm.rank() == 0 ? of({3, 0}) : of({-4, 1}), comm.rank() == 0 ? of({0, 0}) : of({0, inf}));
    watch.end_passes();
    model(of({100, 100}), of({100, 100}));  // not watched any more
    std::vector<Slot> slots(1);
    slots[0].name = "a.weight";
    slots[0].master = of({3, 4});
    slots[0].gradient = of({1, -7});
    watch.before_update(slots);
    raw::copy(slots[0].master, of({3, 4.5}));
    watch.after_update(slots);
    const ValueWatch::Seen all = watch.finish(10);
    for (auto& [key, value] : all.values) seen[key] = value;
    for (const ValueWatch::Spread& s : all.spreads) spreads[s.name] = s;
  });
  EXPECT_EQ(seen["watch/a/mean"], 0);
  EXPECT_NEAR(seen["watch/a/rms"], std::sqrt(26 / 4.0), 1e-5);
  EXPECT_EQ(seen["watch/a/largest"], 4);
  EXPECT_EQ(seen["watch/a/zeros"], 0.25);
  EXPECT_EQ(seen.count("watch/a/nonfinite"), 0u);
  EXPECT_EQ(seen["watch/b/zeros"], 0.75);
  EXPECT_EQ(seen["watch/b/nonfinite"], 1);
  EXPECT_EQ(seen["watch/a.weight/grad_rms"], 5);
  EXPECT_EQ(seen["watch/a.weight/grad_largest"], 7);
  EXPECT_NEAR(seen["watch/a.weight/update_ratio"], 0.5 / std::sqrt(9 + 4.5 * 4.5), 1e-6);
  const auto counts = [&](const std::string& name) { return spreads[name].counts.counts(); };
  using Counts = std::map<int, int64_t>;
  const auto bucket = Histogram::bucket_of;
  EXPECT_EQ(counts("a"), (Counts{{bucket(-4), 1}, {bucket(0), 1}, {bucket(1), 1}, {bucket(3), 1}}));
  EXPECT_EQ(counts("b"), (Counts{{0, 3}})) << "what is not finite is in no bucket";
  EXPECT_EQ(counts("a.weight"), (Counts{{bucket(3), 1}, {bucket(4.5), 1}})) << "after the update";
  EXPECT_EQ(counts("a.weight/grad"), (Counts{{bucket(-7), 1}, {bucket(1), 1}}));
  EXPECT_EQ(counts("a.weight/update"), (Counts{{0, 1}, {bucket(0.5), 1}}));
  EXPECT_EQ(spreads["a"].largest, 4);
}

TEST(Histogram, HasTwoBucketsForEachPowerOfTwoInTheOrderOfTheirValues) {
  const std::vector<float> values{-1e30f, -3, -2.9f, -2, -1e-40f, 0, 1e-40f, 1, 1.4f, 1.5f, 1.9f, 2, 3.4e38f};
  for (size_t i = 0; i < values.size(); ++i) {
    const int bucket = Histogram::bucket_of(values[i]);
    const auto [lower, upper] = Histogram::edges(bucket);
    EXPECT_LE(lower, values[i]) << values[i];
    EXPECT_GE(upper, values[i]) << values[i];
    EXPECT_LE(Histogram::bucket_of(values[i == 0 ? 0 : i - 1]), bucket) << values[i];
  }
  EXPECT_EQ(Histogram::bucket_of(-0.0f), 0);
  EXPECT_EQ(Histogram::edges(Histogram::bucket_of(1.7f)), std::pair(1.5, 2.0));
  EXPECT_EQ(Histogram::edges(Histogram::bucket_of(-1.7f)), std::pair(-2.0, -1.5));
  EXPECT_NE(Histogram::bucket_of(1.4f), Histogram::bucket_of(1.5f));
  EXPECT_EQ(Histogram::bucket_of(1.5f), Histogram::bucket_of(1.9f));
  Histogram whole, part, rest;
  whole.add(values.data(), 13);
  part.add(values.data(), 5);
  rest.add(values.data() + 5, 8);
  part.add(rest);
  EXPECT_EQ(part.counts(), whole.counts());
  EXPECT_EQ(whole.count(), 13);
}

TEST(ValueWatch, RefusesAPatternThatMatchesNothing) {
  testing::run_ranks(1, [&](Communicator& comm) {
    Two model;
    model.name_tree();
    try {
      ValueWatch watch({"a", "c.*"}, 1, model, comm, true);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kConfig);
      EXPECT_NE(std::string(e.what()).find("'c.*' matches no module and no parameter"), std::string::npos) << e.what();
    }
  });
}

}  // namespace
}  // namespace lockstep::value_watch_test
