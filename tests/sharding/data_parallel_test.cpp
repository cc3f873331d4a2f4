// DataParallel: one value of the state after each step, whatever the ranks, groups, threads and devices.
#include "sharding/data_parallel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "comm/local/local_comm.h"
#include "core/autograd/node.h"
#include "core/device/allocator.h"
#include "core/models/bert.h"
#include "core/models/mlp.h"
#include "core/nn/layers.h"
#include "core/ops/ops.h"
#include "optim/builtin.h"
#include "sharding/transfer_log.h"
#include "tests/sharding/each_job.h"

namespace lockstep::data_parallel_test {
namespace {

using testing::agreed_digest;
using testing::gpt_job;
using testing::Job;
using testing::mlp_job;
using testing::odd_job;
using testing::Outcome;
using testing::train;

class DataParallelJobs : public testing::EachJob {};
INSTANTIATE_TEST_SUITE_P(Jobs, DataParallelJobs, testing::each_job(), testing::job_name);

TEST_P(DataParallelJobs, HasOneDigestAtEveryNumberOfRanks) {
  std::set<std::string> digests;
  for (int64_t micro : {1, 3, 4, 7, 11}) {
    Job job = GetParam().make();
    job.micro_count = micro;
    const std::string expected = agreed_digest(job, 1);
    digests.insert(expected);
    for (int ranks : {2, 3, 4})
      EXPECT_EQ(agreed_digest(job, ranks), expected) << ranks << " ranks, " << micro << " micro-batches";
  }
  EXPECT_EQ(digests.size(), 5u)
      << "the micro-batch is the atom: other ones, other bits; else this test compares constants";
}

TEST_P(DataParallelJobs, IgnoresGroupsThreadsAndDevices) {
  Job job = GetParam().make();
  const std::string expected = agreed_digest(job, 1);
  for (double bucket : {0.0, 0.0005, 100.0}) {
    job.parallel.bucket_mb = bucket;
    EXPECT_EQ(agreed_digest(job, 2), expected) << "groups of " << bucket << " MB";
    EXPECT_EQ(agreed_digest(job, 3, {.device = {DeviceType::kAsyncCpu}}), expected)
        << "async device, groups of " << bucket << " MB";
  }
  EXPECT_EQ(agreed_digest(job, 2, {.threads = 3}), expected);
  EXPECT_EQ(agreed_digest(job, 1, {.device = {DeviceType::kAsyncCpu}, .threads = 2}), expected);
}

TEST_P(DataParallelJobs, FastReductionIsCloseToExact) {
  Job job = GetParam().make();
  job.optimizer = "sgd";  // AdamW's first steps turn a rounding error in a tiny gradient into a step of full size
  const std::vector<float> exact = train(job, 1)[0].parameters;
  job.parallel.reduce = ReduceMode::kFast;
  for (int ranks : {1, 2, 4}) {
    const auto all = train(job, ranks);
    for (const Outcome& o : all) {
      EXPECT_EQ(o.digest, all[0].digest) << "ranks stay replicas";
      for (size_t i = 0; i < exact.size(); ++i)
        ASSERT_NEAR(o.parameters[i], exact[i], 1e-5) << i << " at " << ranks << " ranks";
    }
  }
}

// At every level: where parameters come and go, the second run reads them too.
TEST(Recomputation, ChangesNoBit) {
  for (DType compute : {DType::kFloat32, DType::kBFloat16})
    for (ShardLevel level : {ShardLevel::kNone, ShardLevel::kGradients, ShardLevel::kParameters}) {
      Job job = gpt_job();
      job.parallel.level = level;
      job.parallel.compute = compute;
      job.parallel.bucket_mb = 0;  // a group a block
      const std::string expected = agreed_digest(job, 1);
      for (Recompute mode : {Recompute::kBlock, Recompute::kAttention}) {
        job.recompute = mode;
        EXPECT_EQ(agreed_digest(job, 1), expected);
        EXPECT_EQ(agreed_digest(job, 2), expected);
        EXPECT_EQ(agreed_digest(job, 3, {.device = {DeviceType::kAsyncCpu}, .threads = 2}), expected);
      }
    }
}

TEST(Step, ResultIsThatOfTheGlobalBatch) {
  // Without parallel machinery: the same model, the whole batch at once.
  Job job = mlp_job();
  job.steps = 1;
  Mlp model({.hidden = {9, 5}}, {{6}, 3});
  place_parameters(model, job.parallel.seed);
  auto [loss, targets] = job.loss(model, 0, 0, job.batch);
  backward(affine(loss, 1.0 / static_cast<double>(targets)));
  double squares = 0;
  for (auto& p : model.parameters())
    for (double g : grad_of(p.parameter->value).to_vector()) squares += g * g;
  for (int ranks : {1, 3}) {
    const StepResult r = train(job, ranks)[0].steps[0];
    EXPECT_EQ(r.targets, targets);
    EXPECT_NEAR(r.loss, loss.item() / static_cast<double>(targets), 1e-6);
    EXPECT_NEAR(r.grad_norm, std::sqrt(squares), 1e-6);
    EXPECT_TRUE(r.finite);
  }
}

// Ignored targets: the mean runs over those that counted, on all ranks together.
TEST(Step, CountsTargetsAcrossRanks) {
  const auto all = train(gpt_job(), 3);
  for (const StepResult& r : all[1].steps) {
    EXPECT_LT(r.targets, 13 * 6);
    EXPECT_GT(r.targets, 40);
    EXPECT_NEAR(r.loss, std::log(11.0), 0.4) << "an untrained model guesses";
  }
}

TEST(Clipping, IsActiveAndBoundsTheNorm) {
  const auto all = train(gpt_job(), 2);
  int clipped = 0;
  for (const StepResult& r : all[0].steps) {
    const double correction = 13.0 * 6 / static_cast<double>(r.targets);
    EXPECT_NEAR(r.grad_scale, correction * std::min(1.0, 0.5 / r.grad_norm), 1e-12);
    clipped += r.grad_norm > 0.5;
  }
  EXPECT_GT(clipped, 0);
}

// An optimizer of one's own need not know of the copies in the compute type.
TEST(Copies, AreMadeOfMastersWhereNobodyWroteThem) {
  for (ShardLevel level : {ShardLevel::kNone, ShardLevel::kOptimizer, ShardLevel::kParameters})
    for (bool offload : {false, true}) {
      Job job = gpt_job();
      job.parallel.level = level;
      job.parallel.compute = DType::kBFloat16;
      job.parallel.offload_optimizer = offload;
      const std::string expected = agreed_digest(job, 2);
      job.copies = false;
      EXPECT_EQ(agreed_digest(job, 2), expected) << to_text(level);
    }
}

TEST(Unused, ParametersAreCountedAndStayWhereNoDecayMovesThem) {
  Job job = odd_job();
  job.steps = 1;
  const auto one = train(job, 2);
  EXPECT_EQ(one[0].unused[0], 2) << "'sometimes' and 'never' in the first step";
  job.steps = 4;
  bool used = false;
  for (const Outcome& o : train(job, 2))
    for (int u : o.unused) used |= u == 1;
  EXPECT_TRUE(used) << "else this test tests nothing";
}

TEST(Frozen, ParametersTakeNoGradientNoSlotAndNoChange) {
  Job job = odd_job();
  testing::run_ranks(2, [&](Communicator& comm) {
    auto model = job.make();
    DataParallel parallel(*model, comm, job.parallel);
    const auto names = [&] {
      std::set<std::string> out;
      for (const Slot& s : parallel.slots()) out.insert(s.name);
      return out;
    }();
    EXPECT_EQ(names, (std::set<std::string>{"tied", "scale", "odd", "sometimes", "never"}));
    std::vector<double> before;
    for (auto& p : model->parameters())
      if (p.name == "frozen") before = p.parameter->value.to_vector();
    parallel.begin_step(job.micro_count, job.nominal_targets);
    for (int64_t i : parallel.my_micro_batches()) {
      const IndexRange r = split_evenly(job.batch, job.micro_count, i);
      auto [loss, targets] = job.loss(*model, 0, r.begin, r.end);
      parallel.backward(i, loss, targets);
    }
    parallel.finish_step();
    for (auto& p : model->parameters()) {
      if (p.name != "frozen") continue;
      EXPECT_FALSE(grad_of(p.parameter->value).defined());
      EXPECT_EQ(p.parameter->value.to_vector(), before);
    }
    std::set<std::string> stored;
    for (const StateEntry& e : parallel.state()) stored.insert(e.name);
    EXPECT_TRUE(stored.count("parameters/frozen")) << "a checkpoint holds it all the same";
    EXPECT_EQ(parallel.parameter_count(), 49 + 1 + 67 + 49 + 65 + 7);
  });
}

// Frozen parameters of files have no masters: the same bits at every layout, in the memory that one copy takes.
TEST(Frozen, ParametersOfFilesHaveOneDigestAtEveryLayout) {
  for (DType compute : {DType::kFloat32, DType::kBFloat16}) {
    Job job = gpt_job();
    job.parallel.compute = compute;
    job.parallel.frozen = [](const std::string& name) { return !name.starts_with("blocks.1."); };
    job.parallel.frozen_of_files = true;
    job.parallel.file_type = DType::kBFloat16;
    const std::string expected = agreed_digest(job, 1);
    for (ShardLevel level : kShardLevels)
      for (int ranks = 1; ranks <= 4; ++ranks) {
        job.parallel.level = level;
        EXPECT_EQ(agreed_digest(job, ranks), expected) << to_text(compute) << ", " << to_text(level) << ", " << ranks;
      }
  }
}

TEST(Frozen, ParametersOfFilesAreKeptOnceInTheNarrowerType) {
  for (DType compute : {DType::kFloat32, DType::kBFloat16})
    for (ShardLevel level : {ShardLevel::kNone, ShardLevel::kParameters}) {
      testing::run_ranks(2, [&](Communicator& comm) {
        Job job = odd_job();
        job.parallel.compute = compute;
        job.parallel.level = level;
        job.parallel.frozen_of_files = true;
        job.parallel.file_type = DType::kBFloat16;
        auto model = job.make();
        DataParallel parallel(*model, comm, job.parallel);
        for (const StateEntry& e : parallel.state()) EXPECT_NE(e.name, "parameters/frozen");
        const std::vector<StateEntry> base = parallel.base_state();
        ASSERT_EQ(base.size(), 1u);
        EXPECT_EQ(base[0].name, "parameters/frozen");
        // A whole copy that stays is what is kept.
        EXPECT_EQ(base[0].data.dtype(), level == ShardLevel::kNone ? compute : DType::kBFloat16);
        EXPECT_EQ(parallel.parameter_count(), 49 + 1 + 67 + 49 + 65 + 7);
        for (auto& p : model->parameters()) {
          if (level != ShardLevel::kNone || p.name != "frozen") continue;
          EXPECT_TRUE(p.parameter->value.detach().flatten().same_place(base[0].data));
        }
      });
    }
}

// One rank's bad sample: every rank skips that step, and says whose gradient it was.
TEST(NonFinite, GradientOnOneRankSkipsTheStepOnAll) {
  Job good = mlp_job(), bad = mlp_job();
  auto plain = good.loss;
  bad.loss = [plain](Model& model, int64_t step, int64_t begin, int64_t end) {
    auto [loss, targets] = plain(model, step, begin, end);
    if (step == 1 && end == 13) loss = affine(loss, std::numeric_limits<double>::infinity());
    return std::pair(loss, targets);
  };
  good.steps = 1, bad.steps = 2;
  const std::string before = train(good, 1)[0].digest;
  std::string expected;
  for (int ranks : {1, 2, 4})
    for (ReduceMode mode : {ReduceMode::kExact, ReduceMode::kFast}) {
      bad.parallel.reduce = mode;
      const auto all = train(bad, ranks);
      for (const Outcome& o : all) {
        EXPECT_TRUE(o.steps[0].finite);
        EXPECT_FALSE(o.steps[1].finite);
        EXPECT_FALSE(o.steps[1].nonfinite.empty());
        EXPECT_EQ(o.steps[1].nonfinite, all[0].steps[1].nonfinite);
        if (mode == ReduceMode::kExact) {
          EXPECT_EQ(o.digest, before) << "nothing moved";
        }
      }
    }
}

TEST(Requests, OfOneRankAreKnownToAll) {
  Job job = mlp_job();
  testing::run_ranks(3, [&](Communicator& comm) {
    auto model = job.make();
    DataParallel parallel(*model, comm, {});
    for (int asked = -1; asked < 3; ++asked) {
      parallel.begin_step(1, 13);
      for (int64_t i : parallel.my_micro_batches()) {
        auto [loss, targets] = job.loss(*model, 0, 0, 13);
        parallel.backward(i, loss, targets);
      }
      const StepResult r = parallel.finish_step(0, {.stop = comm.rank() == asked, .save = comm.rank() == asked - 1});
      EXPECT_EQ(r.requests.stop, asked >= 0);
      EXPECT_EQ(r.requests.save, asked >= 1);
    }
  });
}

TEST(Overlap, CommunicationBeginsBeforeBackwardEnds) {
  Job job = gpt_job();
  job.parallel.bucket_mb = 0;  // a group for each block
  job.micro_count = 4;
  for (const Outcome& o : train(job, 2)) {
    EXPECT_TRUE(o.overlapped);
  }
}

TEST(Overlap, GroupsLeaveInOneOrderOnEveryRank) {
  Job job = gpt_job();
  job.parallel.bucket_mb = 0;
  std::vector<std::vector<std::string>> orders(3);
  testing::run_ranks(3, [&](Communicator& comm) {
    auto model = job.make();
    DataParallel parallel(*model, comm, job.parallel);
    for (int64_t step = 0; step < 3; ++step) {
      parallel.begin_step(4, 13);
      for (int64_t i : parallel.my_micro_batches()) {
        const IndexRange r = split_evenly(13, 4, i);
        auto samples = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(r.size()));
        WithRandom with({5, step, samples});
        auto [loss, targets] = job.loss(*model, step, r.begin, r.end);
        parallel.backward(i, loss, targets);
      }
      parallel.finish_step();
      for (auto& t : parallel.transfers()) orders[static_cast<size_t>(comm.rank())].push_back(t.bucket);
    }
  });
  EXPECT_EQ(orders[0].size(), 12u) << "two blocks, the last norm, and what is left, in three steps";
  EXPECT_EQ(orders[1], orders[0]);
  EXPECT_EQ(orders[2], orders[0]);
}

// A gradient is written where it travels from: one buffer for the group, and none beside it.
TEST(Gradients, AreFormedInTheGroupsFlatBuffer) {
  auto comms = make_local_communicators(1);
  Mlp model({.hidden = {1000}}, {{1000}, 2});
  DataParallel parallel(model, *comms[0], {.bucket_mb = 1000});
  const Tensor x = Tensor::full({1, 1000}, 0.5), y = Tensor::zeros({1}, DType::kInt32);
  for (int step = 0; step < 3; ++step) {
    parallel.begin_step(1, 1);
    Tensor loss = cross_entropy(model(x), y);
    reset_peak_bytes();
    const int64_t base = allocator_stats().bytes_in_use;
    parallel.backward(0, loss, 1);
    if (step > 0) {  // the buffer was made in the first step
      EXPECT_LT(allocator_stats().peak_bytes - base, 1 << 20) << "a gradient of 4 MB had a second place";
    }
    std::set<const Storage*> storages;
    for (auto& p : model.parameters()) {
      const AutogradRecord& record = *p.parameter->value.record();
      EXPECT_TRUE(record.grad.same_place(record.grad_buffer)) << p.name;
      storages.insert(record.grad.storage().get());
    }
    EXPECT_EQ(storages.size(), 1u);
    parallel.finish_step();
    for (const Slot& s : parallel.slots())
      EXPECT_EQ(s.gradient.storage().get(), *storages.begin()) << "what the optimizer reads";
  }
}

TEST(Contracts, AreChecked) {
  auto comms = make_local_communicators(1);
  Job job = mlp_job();
  auto model = job.make();
  DataParallel parallel(*model, *comms[0], {});
  EXPECT_THROW(parallel.begin_step(0, 1), Error);
  parallel.begin_step(2, 13);
  auto [loss, targets] = job.loss(*model, 0, 0, 5);
  EXPECT_THROW(parallel.backward(1, loss, targets), Error) << "out of order";
  EXPECT_THROW(parallel.finish_step(), Error) << "micro-batches are missing";
  auto frozen = job.make();
  EXPECT_THROW(DataParallel(*frozen, *comms[0], {.frozen = [](const std::string&) { return true; }}), Error);
}

// Whatever its name: what a slot is follows from the module that its parameter belongs to.
TEST(Slots, TellTablesFromMatrices) {
  struct Own : ModuleOf<Tensor> {
    Embedding& names = child<Embedding>("names", 9, 8, Init::normal(1));
    Tensor& places = table("places", {9, 8}, Init::normal(1));
    Linear& linear = child<Linear>("linear", 8, 8);
    Tensor forward(const Tensor& x) override { return x; }
  } own;
  Bert bert({.layers = 1, .heads = 2, .width = 8, .segments = 2}, {{4}, 7});
  auto comms = make_local_communicators(1);
  const auto by_adamw = [&](Module& model) {
    DataParallel parallel(model, *comms[0], {});
    std::string out;
    for (const StateEntry& e : make_muon({}, parallel.slots())->state(parallel.slots()))
      if (e.name.starts_with("adamw.m/") && e.region.shape.rank() >= 2) out += e.name.substr(8) + " ";
    return out;
  };
  EXPECT_EQ(by_adamw(own), "places names.weight ");
  EXPECT_EQ(by_adamw(bert), "tokens.weight positions.weight segments.weight ");
}

// Saved after some steps at one number of ranks, continued at another: the digest of the run that never stopped.
TEST_P(DataParallelJobs, ContinuesAtAnotherNumberOfRanks) {
  Job job = GetParam().make();
  job.steps = 4;
  const std::string straight = train(job, 1)[0].digest;
  for (const auto& [before, after] : {std::pair{2, 3}, std::pair{4, 1}, std::pair{1, 2}}) {
    Job first = job, second = job;
    first.steps = 2;
    second.first_step = 2;
    second.state = train(first, before)[0].state;
    second.parallel.seed = 99;  // nothing is left of the initial values
    for (const Outcome& o : train(second, after)) EXPECT_EQ(o.digest, straight) << before << " ranks, then " << after;
  }
}

// Initial values are functions of name and element: ranks need not talk to agree.
TEST(State, BeginsAlikeForEverySeedOfItsOwn) {
  Job job = gpt_job();
  job.steps = 0;
  const std::string digest = agreed_digest(job, 1);
  EXPECT_EQ(agreed_digest(job, 4), digest);
  job.parallel.seed = 2;
  EXPECT_NE(agreed_digest(job, 1), digest);
}

}  // namespace
}  // namespace lockstep::data_parallel_test
