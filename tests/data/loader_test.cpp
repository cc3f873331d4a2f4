// The loader's laws: every sample once an epoch, and the same steps for every number of ranks and threads.
#include "data/streams/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "data/streams/open_dataset.h"
#include "tests/support/files.h"

namespace lockstep::loader_test {
namespace {

using test::expect_error;

// Sample i of epoch e is the number 1000 e + i; every third target is ignored.
class Counting final : public Dataset {
 public:
  explicit Counting(int64_t size) : size_(size) {
    spec_ = {{{"tokens", DType::kInt32, {3}}, {"labels", DType::kInt32, {2}}}, 10};
  }
  int64_t size() const override { return size_; }
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return {}; }
  const Vocabulary* vocabulary() const override { return nullptr; }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override {
    require(index != fail_at, ExitCode::kBadData, "some.h5: sample ", index, " is damaged");
    int32_t *out = static_cast<int32_t*>(sample[0]), *target = static_cast<int32_t*>(sample[1]);
    for (int i = 0; i < 3; ++i) out[i] = static_cast<int32_t>(1000 * epoch + index);
    target[0] = static_cast<int32_t>(index);
    target[1] = index % 3 == 0 ? kIgnoreIndex : 1;
    ++gets;
  }
  int64_t fail_at = -1;
  mutable std::atomic<int64_t> gets = 0;

 private:
  int64_t size_;
  DataSpec spec_;
};

// All that a step is, as plain values; micro-batches by index.
struct Plain {
  int64_t epoch, position, samples, micro_count;
  Cursor next;
  std::map<int64_t, std::pair<std::vector<int64_t>, std::vector<int32_t>>> micros;
  friend bool operator==(const Plain&, const Plain&) = default;
};

template <class T>
std::vector<T> values_of(const Tensor& t) {
  const T* p = static_cast<const T*>(t.read());
  return {p, p + t.numel()};
}

void add(Plain& plain, const StepBatch& step) {
  plain.epoch = step.epoch, plain.position = step.position, plain.samples = step.samples;
  plain.micro_count = step.micro_count, plain.next = step.next;
  int64_t targets = 0;
  for (const MicroBatch& m : step.mine) {
    int64_t rows = static_cast<int64_t>(m.samples->size());
    EXPECT_EQ(m.batch["tokens"].shape(), Shape({rows, 3}));
    EXPECT_EQ(m.batch[kLabels].shape(), Shape({rows, 2}));
    auto input = values_of<int32_t>(m.batch["tokens"]), target = values_of<int32_t>(m.batch[kLabels]);
    int64_t counted = 0;
    for (int32_t t : target) counted += t != kIgnoreIndex;
    EXPECT_EQ(m.targets, counted);
    targets += counted;
    for (size_t r = 0; r < m.samples->size(); ++r) {
      EXPECT_EQ(input[r * 3 + 2], 1000 * step.epoch + (*m.samples)[r]);
      EXPECT_EQ(target[r * 2], (*m.samples)[r]);
    }
    input.insert(input.end(), target.begin(), target.end());
    EXPECT_TRUE(plain.micros.emplace(m.index, std::pair(*m.samples, input)).second) << "two ranks run " << m.index;
  }
  EXPECT_EQ(step.targets, targets);
}

// The union over all ranks of the next `steps` steps.
std::vector<Plain> run(const Dataset& data, LoaderOptions o, int size, int steps) {
  std::vector<Plain> all(static_cast<size_t>(steps));
  o.size = size;
  for (o.rank = 0; o.rank < size; ++o.rank) {
    Loader loader(data, o);
    for (Plain& plain : all) add(plain, loader.next());
  }
  return all;
}

TEST(Loader, EverySampleOnceAnEpochForEverySizeRankAndThread) {
  for (int64_t n : {7, 24, 50})
    for (int64_t global : {1, 5, 7})
      for (int64_t micro : {1, 2, 5})
        for (int size : {1, 3}) {
          if (micro > global) continue;
          Counting data(n);
          int64_t steps = (n + global - 1) / global;
          auto all = run(data, {.batch_global = global, .batch_micro = micro, .seed = 3, .threads = size == 1 ? 0 : 2},
                         size, static_cast<int>(2 * steps));
          for (int64_t epoch = 0; epoch < 2; ++epoch) {
            std::set<int64_t> seen;
            for (int64_t s = 0; s < steps; ++s) {
              const Plain& step = all[static_cast<size_t>(epoch * steps + s)];
              EXPECT_EQ(step.epoch, epoch);
              EXPECT_EQ(step.position, s * global);
              EXPECT_EQ(step.samples, std::min(global, n - s * global));
              EXPECT_EQ(step.micro_count, (step.samples + micro - 1) / micro);
              EXPECT_EQ(static_cast<int64_t>(step.micros.size()), step.micro_count);
              EXPECT_EQ(step.next, s + 1 < steps ? (Cursor{epoch, (s + 1) * global}) : (Cursor{epoch + 1, 0}));
              for (auto& [index, rows] : step.micros) {
                EXPECT_EQ(static_cast<int64_t>(rows.first.size()), std::min(micro, step.samples - index * micro));
                for (int64_t sample : rows.first) EXPECT_TRUE(seen.insert(sample).second);
              }
            }
            EXPECT_EQ(static_cast<int64_t>(seen.size()), n);
          }
        }
}

TEST(Loader, RanksThreadsScheduleAndPrefetchChangeNothing) {
  Counting data(53);
  LoaderOptions o{.batch_global = 12, .batch_micro = 5, .seed = 9, .threads = 0};
  auto expected = run(data, o, 1, 12);
  for (MicroSchedule schedule : {MicroSchedule::kLocal, MicroSchedule::kWaves})
    for (int size : {1, 2, 3, 4, 5})
      for (int threads : {0, 1, 3})
        for (int prefetch : {1, 4}) {
          o.schedule = schedule, o.threads = threads, o.prefetch = prefetch;
          EXPECT_EQ(run(data, o, size, 12), expected) << size << " ranks, " << threads << " threads";
        }
}

TEST(Loader, StartsAnywhere) {
  Counting data(53);
  LoaderOptions o{.batch_global = 12, .batch_micro = 5, .seed = 9};
  auto expected = run(data, o, 1, 12);
  for (size_t k = 0; k < 12; ++k) {
    o.start = k == 0 ? Cursor{} : expected[k - 1].next;
    auto rest = run(data, o, 2, static_cast<int>(12 - k));
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), expected.begin() + static_cast<int64_t>(k)));
  }
  o.start = {0, 53};
  EXPECT_EQ(run(data, o, 1, 1)[0].epoch, 1);
  // A new batch size goes on where the old one stopped.
  o.start = {0, 7};
  auto odd = run(data, o, 1, 4);
  EXPECT_EQ(odd[3].samples, 53 - 7 - 36);
}

// A changed checkpoint is bad data, not a bug.
TEST(Loader, AStartBeyondTheDataIsRefused) {
  Counting data(53);
  LoaderOptions o{.batch_global = 8, .batch_micro = 2};
  for (const Cursor start : {Cursor{0, 54}, Cursor{0, -1}, Cursor{-1, 0}, Cursor{0, int64_t{1} << 62}}) {
    o.start = start;
    expect_error(ExitCode::kBadData, {"an epoch of this data has 53"}, [&] { run(data, o, 1, 1); });
  }
}

TEST(Loader, AnEvaluationPassIsInOrderAndEnds) {
  Counting data(10);
  for (int threads : {0, 2})
    for (int64_t global : {4, 64}) {
      Loader loader(
          data, {.batch_global = global, .batch_micro = 3, .shuffle = false, .threads = threads, .one_epoch = true});
      std::vector<int64_t> seen;
      int64_t targets = 0, steps = 0;
      for (; !loader.done(); ++steps) {
        StepBatch step = loader.next();
        targets += step.targets;
        for (auto& m : step.mine) seen.insert(seen.end(), m.samples->begin(), m.samples->end());
      }
      EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
      EXPECT_EQ(targets, 16);
      EXPECT_EQ(steps, loader.steps_per_epoch());
      EXPECT_THROW(loader.next(), Error);
    }
}

TEST(Loader, BuildsNoFurtherAheadThanAllowed) {
  Counting data(1000);
  {
    Loader loader(data, {.batch_global = 10, .batch_micro = 5, .threads = 4, .prefetch = 3});
    while (data.gets < 30) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(data.gets, 30);
    loader.next();
    while (data.gets < 40) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(data.gets, 40);
  }  // ends at once, its threads waiting for room
}

TEST(Loader, AnErrorArrivesAtItsStep) {
  for (int threads : {0, 1, 3}) {
    Counting data(40);
    data.fail_at = 25;
    Loader loader(data, {.batch_global = 10, .batch_micro = 5, .shuffle = false, .threads = threads, .prefetch = 4});
    loader.next();
    loader.next();
    for (int i = 0; i < 2; ++i)
      expect_error(ExitCode::kBadData, {"some.h5: sample 25 is damaged"}, [&] { loader.next(); });
  }
}

TEST(Loader, StopsWhileBusyOrFull) {
  Counting data(100000);
  for (int i = 0; i < 50; ++i) {
    Loader loader(data, {.batch_global = 50000, .batch_micro = 1000, .threads = 3, .prefetch = 2});
    if (i % 2) std::this_thread::sleep_for(std::chrono::microseconds(i * 100));
  }
}

TEST(Loader, ImpossibleBatchesAreNamed) {
  Counting data(10);
  auto open = [&](LoaderOptions o) { Loader loader(data, o); };
  expect_error(ExitCode::kConfig, {"batch.micro is 5, more than batch.global, which is 4"},
               [&] { open({.batch_global = 4, .batch_micro = 5}); });
  expect_error(ExitCode::kConfig, {"at least 1 sample"}, [&] { open({.batch_global = 0, .batch_micro = 0}); });
  expect_error(ExitCode::kConfig, {"batch.global is 11", "only 10 samples"},
               [&] { open({.batch_global = 11, .batch_micro = 5}); });
}

TEST(Loader, TensorsLieOnTheDeviceThatWasCurrent) {
  Counting data(40);
  Stream stream({DeviceType::kAsyncCpu}, Stream::Mode::kThread);
  WithStream current(stream);
  for (int threads : {0, 2}) {
    Loader loader(data, {.batch_global = 10, .batch_micro = 5, .threads = threads});
    for (int i = 0; i < 20; ++i) {
      MicroBatch m = std::move(loader.next().mine[0]);
      EXPECT_EQ(m.batch["tokens"].device(), stream.device());
      EXPECT_EQ(m.batch[kLabels].device(), stream.device());
      // Used by the stream and dropped by the host at once.
      stream.enqueue([m](Parallel&) { EXPECT_EQ(m.samples->size(), 5u); });
    }
  }
  stream.synchronize();
}

// Text end to end: over ranks, and with several loaders on one dataset.
TEST(Loader, TextIsTheSameOverRanks) {
  DataOptions o{.name = "synthetic_tokens", .context = 16};
  o.synthetic.tokens = 5000;
  Datasets data = open_datasets(o, 4);
  LoaderOptions options{.batch_global = 12, .batch_micro = 4, .seed = 4};
  auto text = [&](int size) {
    std::map<std::pair<int64_t, int64_t>, std::vector<int32_t>> all;
    std::vector<std::thread> ranks;
    std::mutex mutex;
    for (int rank = 0; rank < size; ++rank)
      ranks.emplace_back([&, rank] {
        LoaderOptions mine = options;
        mine.rank = rank, mine.size = size;
        Loader loader(*data.train, mine);
        for (int64_t step = 0; step < 50; ++step)
          for (MicroBatch& m : loader.next().mine) {
            auto values = values_of<int32_t>(m.batch["tokens"]), targets = values_of<int32_t>(m.batch[kLabels]);
            values.insert(values.end(), targets.begin(), targets.end());
            std::lock_guard lock(mutex);
            all[{step, m.index}] = values;
          }
      });
    for (auto& t : ranks) t.join();
    return all;
  };
  auto expected = text(1);
  EXPECT_EQ(text(2), expected);
  EXPECT_EQ(text(4), expected);
}

}  // namespace
}  // namespace lockstep::loader_test
