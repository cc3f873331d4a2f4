// A planned step is the real one: at every level, each rank on a device without bytes and without peers holds and sends
// exactly what it does among real ones.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "comm/plan/plan_comm.h"
#include "core/device/allocator.h"
#include "core/models/convnet.h"
#include "core/models/gpt.h"
#include "core/ops/ops.h"
#include "optim/builtin.h"
#include "sharding/data_parallel.h"
#include "sharding/tree.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing::plan_test {
namespace {

constexpr int64_t kMicro = 2;

struct Case {
  const char* model;
  ShardLevel level;
  int ranks;
  int64_t group;
  ReduceMode reduce = ReduceMode::kExact;
  DType compute = DType::kFloat32;
  bool offload = false;
  int64_t micro_batches = 8;
  const char* optimizer = "adamw";
};

struct Figures {
  BytesByUse state{};  // after three steps
  std::vector<int64_t> sent;
};

// Three steps of a rank; `look` is called while everything is still there.
void train(const Case& c, Communicator& comm, const std::function<void()>& look) {
  const bool gpt = std::string(c.model) == "gpt";
  std::unique_ptr<Model> model;
  if (gpt)
    model = std::make_unique<Gpt>(GptOptions{.layers = 3, .heads = 2, .width = 24, .dropout = 0.1}, TaskSpec{{6}, 17});
  else model = std::make_unique<Convnet>(ConvnetOptions{.channels = {3, 5}, .hidden = 9}, TaskSpec{{8, 8, 1}, 4});
  DataParallelOptions options;
  options.reduce = c.reduce;
  options.bucket_mb = 0.01;
  options.level = c.level;
  options.group = c.group;
  options.compute = c.compute;
  options.offload_optimizer = c.offload;
  DataParallel parallel(*model, comm, options);
  const auto optimizer = make_choice(builtin_optimizers(), c.optimizer)->build({}, parallel.slots());
  optimizer->set_lr(0.01);
  for (int64_t step = 0; step < 3; ++step) {
    parallel.begin_step(c.micro_batches, c.micro_batches * kMicro);
    for (int64_t index : parallel.my_micro_batches()) {
      WithRandom random({1, step, std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{index, index + 100})});
      const Tensor x = gpt ? Tensor::zeros({kMicro, 6}, DType::kInt32) : Tensor::full({kMicro, 8, 8, 1}, 0.5);
      const Tensor y = gpt ? x : Tensor::zeros({kMicro}, DType::kInt32);
      parallel.backward(index, cross_entropy((*model)(x), y), y.numel());
    }
    const StepResult r = parallel.finish_step(1);
    optimizer->step(parallel.slots(), r);
  }
  look();
}

// State of all ranks together: threads share one allocator.
Figures measured(const Case& c) {
  Figures out;
  out.sent.resize(static_cast<size_t>(c.ranks));
  const BytesByUse before = allocator_stats().by_use;
  run_ranks(c.ranks, [&](Communicator& comm) {
    train(c, comm, [&] {
      out.sent[static_cast<size_t>(comm.rank())] = comm.bytes_sent();
      comm.barrier("all are done");
      if (comm.rank() == 0) out.state = allocator_stats().by_use;
      comm.barrier("and looked at");
    });
  });
  for (size_t i = 0; i < before.size(); ++i) out.state[i] -= before[i];
  return out;
}

Figures planned(const Case& c) {
  Figures out;
  for (int rank = 0; rank < c.ranks; ++rank) {
    const Device device = new_meta_device();
    Stream stream(device, Stream::Mode::kInline);
    WithStream with(stream);
    const auto comm = make_plan_communicator(rank, c.ranks);
    train(c, *comm, [&] {
      out.sent.push_back(comm->bytes_sent());
      const BytesByUse state = allocator_stats(device).by_use;
      for (size_t i = 0; i < state.size(); ++i) out.state[i] += state[i];
    });
    EXPECT_EQ(allocator_stats(device).bytes_in_use, 0) << "and everything goes again";
  }
  return out;
}

class PlannedStep : public ::testing::TestWithParam<Case> {};

TEST_P(PlannedStep, HoldsAndSendsWhatTheRealOneDoes) {
  const Figures real = measured(GetParam()), plan = planned(GetParam());
  EXPECT_EQ(plan.sent, real.sent) << "by rank";
  for (MemoryUse use :
       {MemoryUse::kParameters, MemoryUse::kMoments, MemoryUse::kGradients, MemoryUse::kGathered, MemoryUse::kInHost}) {
    const auto i = static_cast<size_t>(use);
    EXPECT_EQ(plan.state[i], real.state[i]) << to_text(use);
  }
  EXPECT_GT(
      plan.state[static_cast<size_t>(MemoryUse::kParameters)] + plan.state[static_cast<size_t>(MemoryUse::kInHost)], 0);
  EXPECT_GT(plan.state[static_cast<size_t>(GetParam().offload ? MemoryUse::kInHost : MemoryUse::kMoments)], 0);
  EXPECT_EQ(plan.sent[0] > 0, GetParam().ranks > 1);
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const char* model : {"gpt", "convnet"}) {
    out.push_back({model, ShardLevel::kNone, 1, 0});
    for (int ranks : {2, 4})
      for (auto level : {ShardLevel::kNone, ShardLevel::kOptimizer, ShardLevel::kGradients, ShardLevel::kParameters})
        out.push_back({model, level, ranks, 0});
    for (auto level : {ShardLevel::kOptimizer, ShardLevel::kGradients, ShardLevel::kParameters})
      out.push_back({model, level, 4, 2});
  }
  for (auto level : {ShardLevel::kNone, ShardLevel::kParameters})
    out.push_back({"gpt", level, 4, level == ShardLevel::kNone ? 0 : 2, ReduceMode::kFast});
  for (auto level : {ShardLevel::kNone, ShardLevel::kOptimizer, ShardLevel::kParameters})
    out.push_back({"gpt", level, 4, 0, ReduceMode::kExact, DType::kBFloat16, level != ShardLevel::kOptimizer});
  // Some ranks have no data in the last wave.
  for (auto level : {ShardLevel::kGradients, ShardLevel::kParameters})
    for (int group : {0, 2}) {
      out.push_back({"gpt", level, 4, group});
      out.back().micro_batches = 5;
    }
  for (const char* optimizer : {"lamb", "muon", "adamw8bit"})
    for (auto level : {ShardLevel::kNone, ShardLevel::kOptimizer, ShardLevel::kParameters}) {
      out.push_back({"gpt", level, 4, level == ShardLevel::kNone ? 0 : 2});
      out.back().offload = level == ShardLevel::kParameters;
      out.back().optimizer = optimizer;
    }
  return out;
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  constexpr const char* kLevels[] = {"None", "Optimizer", "Gradients", "Parameters"};
  const Case& c = info.param;
  return str(c.model, c.ranks, "Ranks", kLevels[static_cast<int>(c.level)], c.group ? str("GroupOf", c.group) : "",
             c.reduce == ReduceMode::kFast ? "Fast" : "", c.compute == DType::kBFloat16 ? "Bf16" : "",
             c.offload ? "Offloaded" : "", c.micro_batches == 8 ? "" : str("MicroBatches", c.micro_batches),
             std::string_view(c.optimizer) == "adamw" ? "" : c.optimizer);
}
INSTANTIATE_TEST_SUITE_P(Levels, PlannedStep, ::testing::ValuesIn(cases()), name_of);

// Whole gradient buffers that a rank must hold at level none: its stack of open nodes in the tree, with the leaf that
// comes next.
int64_t open_nodes(IndexRange mine, int64_t micro_batches) {
  TreeStack<char> stack(micro_batches);
  size_t most = 0;
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    most = std::max(most, stack.nodes().size() + 1);
    stack.push({i, i + 1}, 0, [](char, char) {});
  }
  return static_cast<int64_t>(most);
}

// Where micro-batches do not divide into the tree, ranks exchange several nodes each: never more than two buffers'
// worth at a time.
TEST(Plan, LevelNoneHoldsTwoBuffersBeyondItsStack) {
  for (const auto& [ranks, micro_batches] :
       {std::pair{2, 7}, {3, 31}, {4, 8}, {4, 100}, {5, 61}, {12, 151}, {64, 300}}) {
    const Case c{
        .model = "gpt", .level = ShardLevel::kNone, .ranks = ranks, .group = 0, .micro_batches = micro_batches};
    for (int rank = 0; rank < ranks; rank += 1 + ranks / 8) {
      const Device device = new_meta_device();
      Stream stream(device, Stream::Mode::kInline);
      WithStream with(stream);
      const auto comm = make_plan_communicator(rank, ranks);
      int64_t parameters = 0, gradients = 0;
      train(c, *comm, [&] {
        parameters = allocator_stats(device).in_use(MemoryUse::kParameters);
        gradients = allocator_stats(device).peak_of(MemoryUse::kGradients);
      });
      const int64_t held = open_nodes(split_evenly(micro_batches, ranks, rank), micro_batches);
      // Beside whole buffers: this rank's part of the sum, and blocks' rounding up to 512 bytes.
      EXPECT_LE(static_cast<double>(gradients), static_cast<double>(parameters) * static_cast<double>(held + 2) * 1.02 +
                                                    static_cast<double>(parameters) / ranks)
          << "rank " << rank << " of " << ranks << ", " << micro_batches << " micro-batches";
    }
  }
}

// State shrinks with each level, as the ladder promises.
TEST(Plan, EachLevelHoldsLess) {
  int64_t before = INT64_MAX;
  for (auto level : {ShardLevel::kNone, ShardLevel::kOptimizer, ShardLevel::kGradients, ShardLevel::kParameters}) {
    const BytesByUse state = planned({"gpt", level, 4, 0}).state;
    const int64_t now = std::accumulate(state.begin(), state.end(), int64_t(0));
    EXPECT_LT(now, before) << static_cast<int>(level);
    before = now;
  }
}

}  // namespace
}  // namespace lockstep::testing::plan_test
