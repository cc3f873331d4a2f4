// What a trace holds of training steps, and the tables that are made of it.
#include "launch/training/profiling/breakdown.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <vector>

#include "launch/training/step/shared_data.h"
#include "launch/training/step/trainer.h"
#include "tests/launch/scratch.h"
#include "tests/support/run_ranks.h"

namespace lockstep::breakdown_test {
namespace {

std::unique_ptr<Settings> settings_for(int ranks) {
  const std::string yaml =
      "train:\n  steps: 20\nbatch:\n  global: 4\n  micro: 2\nmodel:\n  name: gpt\n  layers: 2\n  heads: 2\n"
      "  width: 32\n  dropout: 0.1\noptim:\n  lr: 0.01\n"
      // With a single batch ahead, the second of two steps has one that was built during the first.
      "data:\n  threads: 1\n  prefetch: 1\n  name: synthetic_tokens\n  context: 16\n  validation: 0\n"
      "  synthetic:\n    tokens: 700\n    vocabulary: 40\n";
  return load_settings(builtin(), ConfigTree::parse(yaml, "test.yaml"), ranks);
}

// Runs `body` with a trainer on each rank, once a first step is done.
void with_trainers(int ranks, const std::function<void(Communicator&, Trainer&)>& body) {
  const auto settings = settings_for(ranks);
  SharedData data(*settings);
  testing::run_ranks(ranks, [&](Communicator& comm) {
    Trainer trainer(*settings, data.open(comm), comm);
    trainer.step();
    comm.barrier("begin");
    body(comm, trainer);
    comm.barrier("end");
  });
}

struct TracedSteps {
  std::vector<Span> first, both;
  int thread = 0;  // rank 0's own
};
TracedSteps two_steps(int ranks) {
  TracedSteps out;
  with_trainers(ranks, [&](Communicator& comm, Trainer& trainer) {
    if (comm.rank() == 0) start_trace();
    comm.barrier("traced");
    for (int i = 0; i < 2; ++i) {
      trainer.step();
      if (comm.rank() != 0) continue;
      const Trace trace = take_trace();
      EXPECT_EQ(trace.lost, 0);
      for (const Span& s : trace.spans)
        if (s.rank == 0) out.both.push_back(s);
      if (i == 0) out.first = out.both;
    }
    if (comm.rank() == 0) stop_trace();
    if (comm.rank() == 0) out.thread = trace_thread();
  });
  return out;
}

std::vector<Span> named(const std::vector<Span>& spans, const std::string& name, bool backward = false) {
  std::vector<Span> out;
  for (const Span& s : spans)
    if (s.name == name && s.backward == backward) out.push_back(s);
  return out;
}

TEST(Trace, OfAStepHoldsEveryPartInItsOrder) {
  for (const int ranks : {1, 2}) {
    const auto [spans, both, thread] = two_steps(ranks);
    const size_t micro_batches = 2 / static_cast<size_t>(ranks);
    for (const char* op : {"embedding", "slice", "add", "dropout", "layer_norm", "linear", "causal_attention",
                           "feed_forward", "cross_entropy"}) {
      const auto forward = named(spans, op), backward = named(spans, op, true);
      for (const auto* pass : {&forward, &backward})
        for (const Span& s : *pass) EXPECT_EQ(s.thread, thread) << op;
      EXPECT_EQ(forward.empty(), std::string(op) == "slice") << op;  // a view runs nothing
      ASSERT_FALSE(backward.empty()) << op;
      if (forward.empty() || ranks == 1) continue;
      EXPECT_LE(forward.back().end_ns, backward.front().begin_ns) << op;
    }
    EXPECT_EQ(named(spans, "causal_attention").size(), 2 * micro_batches);
    EXPECT_EQ(named(spans, "feed_forward").size(), 4 * micro_batches);
    for (const Span& s : named(spans, "feed_forward")) EXPECT_EQ(s.flops, 2.0 * (2 * 16) * 32 * 128);

    const auto waited = named(spans, "wait_for_batch"), updates = named(spans, "optimizer");
    ASSERT_EQ(waited.size(), 1u);
    EXPECT_LE(waited[0].end_ns, named(spans, "embedding").front().begin_ns);
    ASSERT_FALSE(updates.empty());
    EXPECT_LE(named(spans, "embedding", true).back().end_ns, updates.back().begin_ns);
    const auto loaded = named(both, "load_batch");
    ASSERT_FALSE(loaded.empty());
    for (const Span& s : loaded) {
      EXPECT_NE(s.thread, thread);
      EXPECT_EQ(s.bytes, static_cast<int64_t>(micro_batches) * 2 * 16 * 4 * 2);
    }
    const auto exchanges = named(spans, "share");
    EXPECT_EQ(exchanges.empty(), ranks == 1);
    for (const Span& s : exchanges) {
      EXPECT_NE(s.thread, thread);
      EXPECT_GT(s.bytes, 0);
      EXPECT_LE(named(spans, "cross_entropy", true).front().begin_ns, s.begin_ns);
      EXPECT_LE(s.end_ns, updates.back().begin_ns);
    }
    EXPECT_EQ(named(spans, "all_gather").empty(), ranks == 1);
  }
}

TEST(Breakdown, RowsAddUpToTheStep) {
  with_trainers(2, [](Communicator& comm, Trainer& trainer) {
    std::optional<Breakdown> breakdown;
    if (comm.rank() == 0) breakdown.emplace();
    const auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < 3; ++i) {
      trainer.step();
      if (breakdown) breakdown->take_step();
    }
    if (!breakdown) return;
    const double step_ms = 1e3 * Seconds(std::chrono::steady_clock::now() - begun).count() / 3;
    const std::string text = breakdown->text(step_ms, {123.4, 5.6});
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line, "rank 0, mean of 3 steps");
    double sum = 0, step = 0, before = 1e9;
    std::vector<std::string> seen;
    while (std::getline(lines, line) && !line.starts_with("step ")) {
      std::istringstream words(line);
      std::string word;
      std::vector<std::string> cells;
      while (words >> word) cells.push_back(word);
      if (cells.empty() || cells[0] == "op") continue;
      if (cells.size() > 1 && cells[1] == "backward") cells.erase(cells.begin());
      const double ms = std::stod(cells[cells[0] == "other" ? 1 : 2]);
      EXPECT_TRUE(cells[0] == "other" || ms <= before) << line;
      before = ms;
      EXPECT_GE(ms, 0) << line;
      sum += ms;
      seen.push_back(cells[0]);
    }
    std::istringstream(line.substr(line.find("1.0") + 3)) >> step;
    EXPECT_NEAR(step, step_ms, 0.001);
    EXPECT_NEAR(sum, step_ms, 0.001 * static_cast<double>(seen.size() + 1)) << text;
    for (const char* op : {"feed_forward", "optimizer", "wait_for_batch", "wait", "other"})
      EXPECT_NE(std::find(seen.begin(), seen.end(), op), seen.end()) << op << "\n" << text;
    const size_t others = text.find("other threads of the rank");
    ASSERT_NE(others, text.npos) << text;
    EXPECT_NE(text.find("share", others), text.npos) << text;
    EXPECT_NE(text.find("load_batch", others), text.npos) << text;
    EXPECT_EQ(text.find("\nwait ", others), text.npos) << text;
    EXPECT_NE(text.find("limits of 1 thread: 123.4 GF/s (fp32 product of 1024 x 1024 matrices), 5.6 GB/s"), text.npos)
        << text;
  });
}

TEST(Breakdown, MeasuresLimitsOfThisMachine) {
  const MachineLimits limits = measure_limits();
  EXPECT_GT(limits.gflops, 0);
  EXPECT_GT(limits.gbps, 0);
  EXPECT_LT(limits.gflops, 1e6);
  EXPECT_LT(limits.gbps, 1e5);
}

}  // namespace
}  // namespace lockstep::breakdown_test
