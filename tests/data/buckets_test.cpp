// Buckets: micro-batches of records of like length, padded no further than they need; every sample once an epoch, the
// same for all numbers of ranks and threads, and from any position.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>

#include "data/streams/loader.h"
#include "data/streams/mixture.h"
#include "data/streams/open_dataset.h"
#include "data/streams/sample_order.h"
#include "data/streams/subset.h"
#include "tests/support/files.h"

namespace lockstep::buckets_test {
namespace {

using test::expect_error;

constexpr int64_t kContext = 40;

// Samples of some lengths: token i of sample s is 100 s + i + 1, its label one more; padding is 0 and kIgnoreIndex.
class Lengths final : public Dataset {
 public:
  Lengths(int64_t count, int64_t buckets, unsigned seed = 1) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < count; ++i) lengths_.push_back(1 + static_cast<int64_t>(random() % kContext));
    spec_ = {{{"tokens", DType::kInt32, {kContext}},
              {std::string(kLabels), DType::kInt32, {kContext}},
              {"kind", DType::kInt32, {}}},
             5000,
             "tokens",
             kContext};
    spec_.length_buckets = buckets;
  }
  int64_t size() const override { return static_cast<int64_t>(lengths_.size()); }
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return {}; }
  const Vocabulary* vocabulary() const override { return nullptr; }
  int64_t length(int64_t, int64_t index) const override { return lengths_[static_cast<size_t>(index)]; }
  void read(int64_t, int64_t index, SampleMemory sample) const override {
    auto *ids = static_cast<int32_t*>(sample[0]), *labels = static_cast<int32_t*>(sample[1]);
    std::fill(ids, ids + kContext, 0);
    std::fill(labels, labels + kContext, kIgnoreIndex);
    std::iota(ids, ids + length(0, index), static_cast<int32_t>(100 * index + 1));
    std::iota(labels, labels + length(0, index), static_cast<int32_t>(100 * index + 2));
    *static_cast<int32_t*>(sample[2]) = static_cast<int32_t>(index);
  }

 private:
  std::vector<int64_t> lengths_;
  DataSpec spec_;
};

std::vector<int32_t> values_of(const Tensor& t) {
  const auto* p = static_cast<const int32_t*>(t.read());
  return {p, p + t.numel()};
}

// Of a step over all ranks: its micro-batches by index, and what it says of itself.
struct Plain {
  Cursor next;
  int64_t samples = 0, units = 0, targets = 0;
  std::map<int64_t, std::vector<std::vector<int32_t>>> micros;  // tokens, labels, kind, samples
  friend bool operator==(const Plain&, const Plain&) = default;
};

std::vector<Plain> run(const Dataset& data, LoaderOptions o, int size, int steps) {
  std::vector<Plain> all(static_cast<size_t>(steps));
  o.size = size;
  for (o.rank = 0; o.rank < size; ++o.rank) {
    Loader loader(data, o);
    for (Plain& plain : all) {
      const StepBatch step = loader.next();
      plain.next = step.next, plain.samples = step.samples, plain.units = step.units;
      plain.targets += step.targets;
      for (const MicroBatch& m : step.mine) {
        const auto rows = static_cast<int64_t>(m.samples->size()), length = m.batch["tokens"].dim(1);
        EXPECT_EQ(m.batch["tokens"].shape(), (Shape{rows, length}));
        EXPECT_EQ(m.batch[kLabels].shape(), (Shape{rows, length}));
        EXPECT_EQ(m.batch["kind"].shape(), Shape{rows});
        plain.micros[m.index] = {values_of(m.batch["tokens"]),
                                 values_of(m.batch[kLabels]),
                                 values_of(m.batch["kind"]),
                                 {m.samples->begin(), m.samples->end()}};
      }
    }
  }
  return all;
}

TEST(Buckets, EverySampleIsOnceInAnEpochAndPaddedToItsMicroBatch) {
  for (const int64_t count : {130, 2000})
    for (const int64_t global : {7, 12}) {
      const Lengths data(count, 8);
      const int64_t steps = ceil_div(count, global);
      const std::vector<Plain> all =
          run(data, {.batch_global = global, .batch_micro = 5, .pool = 64, .seed = 3}, 1, static_cast<int>(2 * steps));
      std::vector<std::vector<int64_t>> orders;
      for (int64_t epoch = 0; epoch < 2; ++epoch) {
        std::set<int64_t> seen;
        int64_t units = 0, used = 0;
        orders.emplace_back();
        for (int64_t s = 0; s < steps; ++s) {
          const Plain& step = all[static_cast<size_t>(epoch * steps + s)];
          EXPECT_EQ(step.samples, std::min(global, count - s * global));
          int64_t padded = 0, targets = 0;
          for (const auto& [index, values] : step.micros) {
            const auto rows = static_cast<int64_t>(values[3].size());
            const int64_t length = static_cast<int64_t>(values[0].size()) / rows;
            EXPECT_EQ(rows, std::min<int64_t>(5, step.samples - index * 5));
            EXPECT_EQ(length % 5, 0) << "one of eight lengths";
            int64_t longest = 0;
            for (int64_t row = 0; row < rows; ++row) {
              const int64_t sample = values[3][static_cast<size_t>(row)], own = data.length(0, sample);
              EXPECT_TRUE(seen.insert(sample).second);
              EXPECT_EQ(values[2][static_cast<size_t>(row)], sample);
              for (int64_t i = 0; i < length; ++i) {
                const auto at = static_cast<size_t>(row * length + i);
                EXPECT_EQ(values[0][at], i < own ? 100 * sample + i + 1 : 0);
                EXPECT_EQ(values[1][at], i < own ? 100 * sample + i + 2 : kIgnoreIndex);
              }
              longest = std::max(longest, own), targets += own;
              orders.back().push_back(sample);
            }
            EXPECT_EQ(length, round_up(longest, 5));
            padded += rows * length;
          }
          EXPECT_EQ(step.units, padded);
          EXPECT_EQ(step.targets, targets);
          units += padded, used += targets;
        }
        EXPECT_EQ(static_cast<int64_t>(seen.size()), count);
        EXPECT_LT(static_cast<double>(units), (count > 1000 ? 1.2 : 1.5) * static_cast<double>(used));
      }
      EXPECT_NE(orders[0], orders[1]);
    }
}

TEST(Buckets, RanksThreadsAndScheduleChangeNothing) {
  const Lengths data(900, 4);
  LoaderOptions o{.batch_global = 12, .batch_micro = 2, .pool = 64, .seed = 9, .threads = 0};
  const std::vector<Plain> expected = run(data, o, 1, 160);
  for (MicroSchedule schedule : {MicroSchedule::kLocal, MicroSchedule::kWaves})
    for (int size : {1, 3, 4})
      for (int threads : {1, 3}) {
        o.schedule = schedule, o.threads = threads;
        EXPECT_EQ(run(data, o, size, 160), expected) << size << " ranks, " << threads << " threads";
      }
  // From any position, such as within a pool of steps, at its edge and in a later epoch.
  for (const size_t done : {1u, 20u, 64u, 75u, 140u}) {
    o.start = expected[done - 1].next;
    const std::vector<Plain> rest = run(data, o, 2, 3);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(rest[i], expected[done + i]) << done << " + " << i;
  }
}

TEST(Buckets, WithAPoolOfOneStepAStepHasTheSamplesThatItHasWithoutThem) {
  const Lengths plain(300, 1), cut(300, 8);
  const LoaderOptions o{.batch_global = 24, .batch_micro = 4, .seed = 9};
  const std::vector<Plain> expected = run(plain, o, 1, 26), got = run(cut, o, 3, 26);
  int64_t units = 0, all = 0;
  for (size_t s = 0; s < 26; ++s) {
    std::multiset<int64_t> a, b;
    int64_t before = 0;
    for (const auto& [index, values] : expected[s].micros) a.insert(values[3].begin(), values[3].end());
    for (const auto& [index, values] : got[s].micros) {
      b.insert(values[3].begin(), values[3].end());
      const auto length = static_cast<int64_t>(values[0].size() / values[3].size());
      EXPECT_GE(length, before);
      before = length;
    }
    EXPECT_EQ(a, b) << s;
    EXPECT_EQ(expected[s].targets, got[s].targets);
    units += got[s].units, all += expected[s].units;
  }
  EXPECT_LT(units, all * 7 / 10);
}

TEST(Buckets, AnEvaluationPassIsByLengthWhateverAStepIs) {
  const Lengths data(100, 8);
  std::vector<std::vector<int64_t>> orders;
  for (const int64_t global : {4, 12, 400}) {
    Loader loader(data, {.batch_global = global, .batch_micro = 4, .shuffle = false, .one_epoch = true});
    orders.emplace_back();
    int64_t before = 0;
    while (!loader.done())
      for (const MicroBatch& m : loader.next().mine) {
        EXPECT_GE(m.batch["tokens"].dim(1), before);
        before = m.batch["tokens"].dim(1);
        orders.back().insert(orders.back().end(), m.samples->begin(), m.samples->end());
      }
    EXPECT_EQ(std::set<int64_t>(orders.back().begin(), orders.back().end()).size(), 100u);
    EXPECT_EQ(orders.back(), orders.front());
  }
}

TEST(Buckets, OneIsTheOrderAndTheShapeWithoutThem) {
  const Lengths data(100, 1);
  const SampleOrder order(data, {.seed = 5, .step = 8});
  const std::vector<int64_t> all = order(2, {0, 100});
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 100u);
  EXPECT_EQ(order(2, {30, 40}), (std::vector<int64_t>(all.begin() + 30, all.begin() + 40)));
  Loader loader(data, {.batch_global = 8, .batch_micro = 4, .seed = 5, .start = {2, 32}});
  const StepBatch step = loader.next();
  EXPECT_EQ(step.mine[1].batch["tokens"].shape(), (Shape{4, kContext}));
  EXPECT_EQ(step.units, 8 * kContext);
  EXPECT_EQ(*step.mine[1].samples, (std::vector<int64_t>(all.begin() + 36, all.begin() + 40)));
}

TEST(Buckets, LengthsComeThroughMixturesAndSubsets) {
  const auto a = std::make_shared<Lengths>(20, 4, 1), b = std::make_shared<Lengths>(30, 4, 2);
  const Mixture mixture({a, b}, {{1, 2}, true, 7});
  const Subset some(mixture, 13);
  std::vector<int32_t> ids(kContext), labels(kContext), kind(1);
  void* const memory[] = {ids.data(), labels.data(), kind.data()};
  for (const Dataset* data : {static_cast<const Dataset*>(&mixture), static_cast<const Dataset*>(&some)})
    for (int64_t epoch = 0; epoch < 3; ++epoch)
      for (int64_t i = 0; i < data->size(); ++i) {
        data->read(epoch, i, {data->spec().tensors, memory});
        EXPECT_EQ(std::count(ids.begin(), ids.end(), 0), kContext - data->length(epoch, i));
      }
}

TEST(Buckets, WithoutRecordsOrPaddingAreRefused) {
  DataOptions o;
  o.name = "synthetic_tokens", o.context = 8, o.buckets = 4;
  expect_error(ExitCode::kConfig, {"data.buckets is 4", "set data.packing to pad"}, [&] { open_datasets(o, 1); });
  o.packing = Packing::kPack;
  expect_error(ExitCode::kConfig, {"data.buckets is 4", "set data.packing to pad"}, [&] { open_datasets(o, 1); });
  o.name = "synthetic_images", o.context = 0, o.packing = Packing::kWindows;
  expect_error(ExitCode::kConfig, {"data.buckets is set, but the data is no text"}, [&] { open_datasets(o, 1); });
}

}  // namespace
}  // namespace lockstep::buckets_test
