// What it costs rank 0 to start a run with many ranks: calls that it makes, and bytes that reach it, until its first
// checkpoint is whole. Ranks are threads; tests/fault/control_test.sh counts the messages of processes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "launch/checkpoints/saver.h"
#include "launch/commands/commands.h"
#include "launch/training/step/shared_data.h"
#include "launch/training/step/trainer.h"
#include "tests/support/files.h"
#include "tests/support/run_ranks.h"
#include "tests/support/sanitized.h"
#include "tests/support/thorough.h"

namespace lockstep::start_cost_test {
namespace {

struct Cost {
  std::atomic<int64_t> calls{0}, bytes{0};  // bytes: received
};

// Counts one rank's calls, those of communicators that are split from it, too.
class CountingComm final : public Communicator {
 public:
  CountingComm(Communicator& inner, Cost& cost) : inner_(inner), cost_(cost) {}
  CountingComm(std::unique_ptr<Communicator> own, Cost& cost) : own_(std::move(own)), inner_(*own_), cost_(cost) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view backend() const override { return inner_.backend(); }
  bool shares_memory() const override { return inner_.shares_memory(); }
  std::vector<int> machines() const override { return inner_.machines(); }
  int64_t bytes_sent() const override { return inner_.bytes_sent(); }
  void abort(const Error& why) override { inner_.abort(why); }
  std::optional<Error> failure() const override { return inner_.failure(); }

  Work all_reduce(const Tensor& t, ReduceOp op, std::string_view label) override {
    count(t, t.numel());
    return inner_.all_reduce(t, op, label);
  }
  Work reduce_scatter(const Tensor& out, const Tensor& in, const std::vector<int64_t>& counts, ReduceOp op,
                      std::string_view label) override {
    count(in, in.numel());
    return inner_.reduce_scatter(out, in, counts, op, label);
  }
  // Ranks that are done with their part of a checkpoint exchange the same few values every fifth of a second until all
  // are (launch/world/together.h). However long that takes, the first such exchange alone counts.
  Work all_gather(const Tensor& out, const Tensor& in, const std::vector<int64_t>& counts,
                  std::string_view label) override {
    const bool again = label == kPolled && gathered_ == out.numel();
    count(out, again ? 0 : out.numel());
    gathered_ = label == kPolled ? out.numel() : -1;
    return inner_.all_gather(out, in, counts, label);
  }
  Work all_to_all(const Tensor& out, const std::vector<int64_t>& receive_counts,
                  const std::vector<int64_t>& receive_offsets, const Tensor& in,
                  const std::vector<int64_t>& send_counts, const std::vector<int64_t>& send_offsets,
                  std::string_view label) override {
    count(out, std::accumulate(receive_counts.begin(), receive_counts.end(), int64_t{0}));
    return inner_.all_to_all(out, receive_counts, receive_offsets, in, send_counts, send_offsets, label);
  }
  Work broadcast(const Tensor& t, int root, std::string_view label) override {
    count(t, t.numel());
    return inner_.broadcast(t, root, label);
  }
  Work send(const Tensor& t, int to, std::string_view label) override {
    count(t, 0);
    return inner_.send(t, to, label);
  }
  Work receive(const Tensor& t, int from, std::string_view label) override {
    count(t, t.numel());
    return inner_.receive(t, from, label);
  }
  void barrier(std::string_view label) override {
    ++cost_.calls;
    inner_.barrier(label);
  }
  Work fence(std::string_view label) override {
    ++cost_.calls;
    return inner_.fence(label);
  }
  Shared share(const Tensor& t, const std::vector<int64_t>& counts, std::string_view label) override {
    ++cost_.calls;
    return inner_.share(t, counts, label);
  }
  std::unique_ptr<Communicator> split(int color, int key, std::string_view label) override {
    ++cost_.calls;
    auto part = inner_.split(color, key, label);
    return part ? std::make_unique<CountingComm>(std::move(part), cost_) : nullptr;
  }

 private:
  static constexpr std::string_view kPolled = "checkpoint";

  void count(const Tensor& t, int64_t elements) {
    gathered_ = -1;
    ++cost_.calls;
    cost_.bytes += elements * size_of(t.dtype());
  }
  std::unique_ptr<Communicator> own_;
  Communicator& inner_;
  Cost& cost_;
  int64_t gathered_ = -1;  // elements of the last call, if it was a gather of that label
};

const char* const kYaml =
    "batch: {global: 1024, micro: 1}\nmodel: {name: mlp, hidden: [8]}\n"
    "data: {name: synthetic_images, synthetic: {images: 1200, height: 4, width: 4}}\n";

struct Start {
  int64_t calls = 0, bytes = 0;  // a checkpoint's calls depend on how long it takes to write
};

Start start_of(int ranks, const std::string& level) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "checkpoints");
  const App app = builtin();
  const auto settings =
      load_settings(app, ConfigTree::parse(str(kYaml, "sharding: {level: ", level, "}\n"), "test.yaml"), ranks);
  SharedData data(*settings);
  Cost cost;
  std::atomic<int64_t> at_start{0};
  const auto begun = std::chrono::steady_clock::now();
  testing::run_ranks(ranks, [&](Communicator& inner) {
    std::unique_ptr<Communicator> counting;
    if (inner.rank() == 0) counting = std::make_unique<CountingComm>(inner, cost);
    Communicator& comm = counting ? *counting : inner;
    Trainer trainer(*settings, data.open(comm), comm);
    if (inner.rank() == 0) at_start = cost.calls.load();
    Saver saver(comm, folder / "checkpoints", {});
    saver.start(trainer.info(), trainer.entries_to_save());
    saver.finish();
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  std::printf(
      "[ %5d threads, level %s ] %lld calls until the first step, %lld with a checkpoint; %lld bytes reach rank 0; "
      "%.2f s\n",
      ranks, level.c_str(), static_cast<long long>(at_start), static_cast<long long>(cost.calls),
      static_cast<long long>(cost.bytes), seconds);
  return {at_start, cost.bytes};
}

TEST(StartCost, CallsAreAsManyAtEveryNumberOfRanksAndBytesGrowWithIt) {
  for (const std::string level : {"none", "parameters"}) {
    std::vector<int> sizes = {16, 64};
    if (!testing::kSanitized) sizes.push_back(256);
    if (testing::thorough() && !testing::kSanitized && level == "none") sizes.push_back(1024);
    std::vector<Start> costs;
    for (const int ranks : sizes) costs.push_back(start_of(ranks, level));
    for (size_t i = 1; i < costs.size(); ++i) {
      EXPECT_EQ(costs[i].calls, costs[0].calls) << sizes[i] << " ranks, level " << level;
      // By the line through the first two, and no more than 2 KiB for each rank.
      EXPECT_LE(costs[i].bytes, int64_t{2048} * sizes[i]) << sizes[i] << " ranks, level " << level;
      const double slope = static_cast<double>(costs[1].bytes - costs[0].bytes) / (sizes[1] - sizes[0]);
      const double line = static_cast<double>(costs[0].bytes) + slope * (sizes[i] - sizes[0]);
      EXPECT_NEAR(static_cast<double>(costs[i].bytes), line, 0.1 * line) << sizes[i] << " ranks, level " << level;
    }
  }
}

}  // namespace
}  // namespace lockstep::start_cost_test
