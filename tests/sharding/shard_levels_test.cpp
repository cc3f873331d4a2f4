// Shard levels: the state after each step is one value at every level, group size, number of ranks and precision, and
// parameters are in memory only where they are used.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "core/autograd/node.h"
#include "core/models/gpt.h"
#include "core/nn/layers.h"
#include "core/ops/ops.h"
#include "sharding/transfer_log.h"
#include "tests/sharding/each_job.h"
#include "tests/support/planted_machines.h"
#include "tests/support/thorough.h"

namespace lockstep::shard_levels_test {
namespace {

using testing::agreed_digest;
using testing::gpt_job;
using testing::Job;
using testing::mlp_job;
using testing::odd_job;
using testing::Outcome;
using testing::PlantedMachines;
using testing::train;

std::string where(const Job& job, int ranks) {
  return str("level ", static_cast<int>(job.parallel.level), ", group ", job.parallel.group, ", ", ranks, " ranks, ",
             job.micro_count, " micro-batches");
}

class ShardLevelJobs : public testing::EachJob {};
INSTANTIATE_TEST_SUITE_P(Jobs, ShardLevelJobs, testing::each_job(), testing::job_name);

TEST_P(ShardLevelJobs, HasOneDigestAtEveryLevelAndGroup) {
  for (int64_t micro : {1, 4, 7}) {
    Job job = GetParam().make();
    job.parallel.bucket_mb = 0;  // every block a group
    job.micro_count = micro;
    const std::string expected = agreed_digest(job, 1);
    for (ShardLevel level : kShardLevels)
      for (const auto& [ranks, group] : {std::pair{1, 0}, {2, 0}, {3, 0}, {4, 0}, {4, 2}, {2, 1}}) {
        if (level == ShardLevel::kNone && group != 0) continue;
        job.parallel.level = level;
        job.parallel.group = group;
        EXPECT_EQ(agreed_digest(job, ranks), expected) << where(job, ranks);
      }
  }
}

// Updates that depend on whole parameters, of which ranks hold slices, and moments that are no fp32 values.
TEST_P(ShardLevelJobs, HasOneDigestWithEachOptimizerThatIsNotElementwise) {
  for (const char* optimizer : {"lamb", "muon", "adamw8bit"})
    for (DType compute : {DType::kFloat32, DType::kBFloat16}) {
      SCOPED_TRACE(str(optimizer, " in ", compute));
      Job job = GetParam().make();
      job.optimizer = optimizer;
      job.parallel.compute = compute;
      const Job alone = job;
      const std::string expected = agreed_digest(job, 1);
      for (double bucket : {0.0, 4.0}) {
        if (!testing::thorough() && (bucket > 0) != (compute == DType::kFloat32)) continue;  // each with one of them
        for (ShardLevel level : kShardLevels)
          for (const auto& [ranks, group] : {std::pair{2, 0}, {3, 0}, {4, 2}}) {
            job.parallel.bucket_mb = bucket;
            job.parallel.level = level;
            job.parallel.group = level == ShardLevel::kNone ? 0 : group;
            job.parallel.offload_optimizer = ranks == 3;
            EXPECT_EQ(agreed_digest(job, ranks), expected) << where(job, ranks);
          }
      }
      Job first = job, second = alone;
      first.steps = 1;
      second.first_step = 1;
      second.state = train(first, 4)[0].state;
      EXPECT_EQ(train(second, 2)[0].digest, train(alone, 1)[0].digest) << "goes on";
    }
}

TEST_P(ShardLevelJobs, HasOneDigestAtEightRanks) {
  Job job = GetParam().make();
  job.micro_count = 9;
  const std::string expected = agreed_digest(job, 1);
  for (ShardLevel level : kShardLevels)
    for (int group : {0, 4, 2}) {
      if (level == ShardLevel::kNone && group != 0) continue;
      job.parallel.level = level;
      job.parallel.group = group;
      EXPECT_EQ(agreed_digest(job, 8), expected) << where(job, 8);
    }
}

TEST_P(ShardLevelJobs, HasOneDigestAcrossMachines) {
  for (const auto& [machines, ranks, micro] : {std::tuple{2, 2, 8}, {3, 2, 12}, {2, 3, 7}, {4, 1, 8}, {18, 1, 36}}) {
    Job job = GetParam().make();
    job.batch = std::max<int64_t>(job.batch, micro);
    job.nominal_targets = job.batch;
    job.micro_count = micro;
    job.parallel.bucket_mb = 0;
    const std::string expected = agreed_digest(job, 1);
    const PlantedMachines planted(ranks);
    const int size = machines * ranks;
    for (ShardLevel level : kShardLevels)
      for (int group : {0, size / 2}) {
        if (machines > 16 && group == 0 && level != ShardLevel::kGradients && !testing::thorough()) continue;
        if (size % std::max(1, group) != 0 || (group != 0 && level == ShardLevel::kNone)) continue;
        job.parallel.level = level;
        job.parallel.group = group;
        EXPECT_EQ(agreed_digest(job, size), expected) << where(job, size) << ", machines of " << ranks;
      }
  }
}

TEST_P(ShardLevelJobs, IgnoresDevicesThreadsAndResharding) {
  Job job = GetParam().make();
  job.parallel.bucket_mb = 0;
  job.micro_count = 5;
  const std::string expected = agreed_digest(job, 1);
  for (ShardLevel level : kShardLevels) {
    job.parallel.level = level;
    job.parallel.group = 0;
    EXPECT_EQ(agreed_digest(job, 3, {.device = {DeviceType::kAsyncCpu}}), expected) << where(job, 3) << ", async";
    EXPECT_EQ(agreed_digest(job, 2, {.threads = 3}), expected) << where(job, 2) << ", threads";
    if (level == ShardLevel::kNone) continue;
    job.parallel.group = 2;
    EXPECT_EQ(agreed_digest(job, 4, {.device = {DeviceType::kAsyncCpu}}), expected) << where(job, 4) << ", async";
  }
  job.parallel.group = 0;
  for (Reshard reshard : {Reshard::kYes, Reshard::kNo}) {
    job.parallel.reshard_after_forward = reshard;
    EXPECT_EQ(agreed_digest(job, 2), expected) << static_cast<int>(reshard);
  }
}

// Each precision has one value; it differs from fp32's, else this compares nothing.
TEST_P(ShardLevelJobs, HasOneDigestInEachPrecision) {
  std::set<std::string> digests;
  for (const auto& [compute, reduce] : {std::pair{DType::kFloat32, DType::kFloat32},
                                        {DType::kBFloat16, DType::kFloat32},
                                        {DType::kBFloat16, DType::kBFloat16},
                                        {DType::kFloat32, DType::kBFloat16}}) {
    Job job = GetParam().make();
    job.parallel.compute = compute;
    job.parallel.reduce_dtype = reduce;
    job.micro_count = 5;
    const std::string expected = agreed_digest(job, 1);
    digests.insert(expected);
    for (ShardLevel level : kShardLevels)
      for (const auto& [ranks, group] : {std::pair{2, 0}, {3, 0}, {4, 2}}) {
        job.parallel.level = level;
        job.parallel.group = level == ShardLevel::kNone ? 0 : group;
        EXPECT_EQ(agreed_digest(job, ranks), expected)
            << where(job, ranks) << ", " << to_text(compute) << ", gradients " << to_text(reduce);
      }
  }
  EXPECT_EQ(digests.size(), 4u);
}

// A power of two leaves every bit where it was, as long as nothing under- or overflows.
TEST_P(ShardLevelJobs, DoesNotShowTheLossScale) {
  Job job = GetParam().make();
  const Outcome plain = train(job, 1)[0];
  job.loss_scale = 1024;
  job.parallel.level = ShardLevel::kParameters;
  const Outcome scaled = train(job, 2)[0];
  EXPECT_EQ(scaled.digest, plain.digest);
  EXPECT_EQ(scaled.steps[1].grad_norm, plain.steps[1].grad_norm);
}

// Masters and moments elsewhere, through the device by chunk: the same bits.
TEST_P(ShardLevelJobs, DoesNotShowOffloading) {
  Job job = GetParam().make();
  const std::string expected = agreed_digest(job, 1);
  job.parallel.offload_optimizer = true;
  for (ShardLevel level : kShardLevels) {
    job.parallel.level = level;
    EXPECT_EQ(agreed_digest(job, 2), expected) << where(job, 2);
    EXPECT_EQ(agreed_digest(job, 2, {.device = {DeviceType::kAsyncCpu}}), expected) << where(job, 2) << ", async";
  }
}

TEST_P(ShardLevelJobs, GoesOnAtAnotherLevelAndNumberOfRanks) {
  Job job = GetParam().make();
  job.steps = 4;
  const std::string straight = train(job, 1)[0].digest;
  Job first = job;
  first.steps = 2;
  first.parallel.level = ShardLevel::kParameters;
  first.parallel.bucket_mb = 0;
  Job second = job;
  second.first_step = 2;
  second.state = train(first, 4)[0].state;
  second.parallel.seed = 99;  // nothing is left of the initial values
  for (const auto& [level, ranks, group] : {std::tuple{ShardLevel::kNone, 1, 0},
                                            {ShardLevel::kGradients, 3, 0},
                                            {ShardLevel::kParameters, 4, 2},
                                            {ShardLevel::kOptimizer, 2, 0},
                                            {ShardLevel::kParameters, 8, 0}}) {
    second.parallel.level = level;
    second.parallel.group = group;
    for (const Outcome& o : train(second, ranks)) EXPECT_EQ(o.digest, straight) << where(second, ranks);
  }
}

TEST_P(ShardLevelJobs, FastReductionIsCloseToExactAtEveryLevel) {
  Job job = GetParam().make();
  job.optimizer = "sgd";  // AdamW's first steps turn a rounding error in a tiny gradient into a step of full size
  const std::vector<float> exact = train(job, 1)[0].parameters;
  job.parallel.reduce = ReduceMode::kFast;
  for (ShardLevel level : kShardLevels)
    for (const auto& [ranks, group] : {std::pair{2, 0}, {3, 0}, {4, 2}}) {
      job.parallel.level = level;
      job.parallel.group = level == ShardLevel::kNone ? 0 : group;
      const Outcome o = train(job, ranks)[0];
      ASSERT_EQ(o.parameters.size(), exact.size());
      for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(o.parameters[i], exact[i], 1e-5) << where(job, ranks);
    }
}

// Two forward passes before one backward, through the same blocks.
TEST(Passes, SeveralForwardBeforeOneBackward) {
  Job job = gpt_job();
  const auto once = job.loss;
  job.loss = [once](Model& model, int64_t step, int64_t begin, int64_t end) {
    auto [first, targets] = once(model, step, begin, end);
    auto [second, more] = once(model, step + 7, begin, end);
    return std::pair(add(first, second), targets + more);
  };
  job.nominal_targets *= 2;
  job.parallel.bucket_mb = 0;
  const std::string expected = agreed_digest(job, 1);
  for (ShardLevel level : kShardLevels)
    for (int ranks : {2, 3}) {
      job.parallel.level = level;
      EXPECT_EQ(agreed_digest(job, ranks), expected) << where(job, ranks);
    }
}

// Of made-up samples [begin, end) of `width` features.
std::pair<Tensor, int64_t> loss_of_three_classes(Model& model, int64_t step, int64_t begin, int64_t end,
                                                 int64_t width) {
  std::vector<float> x;
  std::vector<int32_t> y;
  for (int64_t s = begin; s < end; ++s) {
    for (int64_t i = 0; i < width; ++i) x.push_back(static_cast<float>((s * 31 + i * 17 + step) % 19) / 19 - 0.5f);
    y.push_back(static_cast<int32_t>((s + step) % 3));
  }
  return {cross_entropy(model(Tensor::of(x, {end - begin, width})), Tensor::of(y, {end - begin})), end - begin};
}

// A block that only some micro-batches use.
class Skipping : public Model {
 public:
  explicit Skipping(bool& skip) : skip_(skip) {
    for (int i = 0; i < 4; ++i) layers_.push_back(&child<Linear>(str("layers.", i), 70, 70));
    head_ = &child<Linear>("head", 70, 3);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (size_t i = 0; i < layers_.size(); ++i)
      if (!skip_ || i % 2 == 0) h = tanh((*layers_[i])(h));
    return (*head_)(h);
  }

 private:
  bool& skip_;
  std::vector<Linear*> layers_;
  Linear* head_;
};

TEST(Passes, BlocksThatSomeMicroBatchesSkip) {
  thread_local bool skip = false;
  Job job = mlp_job();
  job.make = [] { return std::make_unique<Skipping>(skip); };
  job.loss = [](Model& model, int64_t step, int64_t begin, int64_t end) {
    skip = (begin + step) % 2 == 0;
    return loss_of_three_classes(model, step, begin, end, 70);
  };
  job.parallel.bucket_mb = 0;
  for (int64_t micro : {3, 4, 5}) {
    job.micro_count = micro;
    job.parallel.level = ShardLevel::kNone;
    const std::string expected = agreed_digest(job, 1);
    for (ShardLevel level : kShardLevels)
      for (int ranks : {2, 4}) {
        job.parallel.level = level;
        EXPECT_EQ(agreed_digest(job, ranks), expected) << where(job, ranks);
      }
  }
}

// Micro-batches that use no block at all, or only in one forward pass of two.
class Exiting : public Model {
 public:
  explicit Exiting(bool& early) : early_(early), in_(parameter("in", {8, 8}, Init::normal(0.4))) {
    for (int i = 0; i < 3; ++i) layers_.push_back(&child<Linear>(str("layers.", i), 8, 8));
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = linear(x, in_);
    for (Linear* layer : layers_)
      if (!early_) h = tanh((*layer)(h));
    return slice(h, 1, 0, 3);
  }

 private:
  bool& early_;
  Tensor& in_;
  std::vector<Linear*> layers_;
};

TEST(Passes, MicroBatchesThatUseNoBlock) {
  thread_local bool early = false;
  Job job = mlp_job();
  job.make = [] { return std::make_unique<Exiting>(early); };
  job.loss = [](Model& model, int64_t step, int64_t begin, int64_t end) {
    early = (begin + step) % 2 == 0;
    return loss_of_three_classes(model, step, begin, end, 8);
  };
  job.parallel.bucket_mb = 0;
  for (int64_t micro : {1, 3, 4, 5}) {
    job.micro_count = micro;
    job.parallel.level = ShardLevel::kNone;
    const std::string expected = agreed_digest(job, 1);
    for (ShardLevel level : kShardLevels)
      for (int ranks : {2, 4}) {
        job.parallel.level = level;
        EXPECT_EQ(agreed_digest(job, ranks), expected) << where(job, ranks);
      }
  }
}

// The root itself computes a block again: its passes are then cut short by the block's second forward run.
class Wrapping : public Model {
 public:
  Wrapping() {
    for (int i = 0; i < 3; ++i) layers_.push_back(&child<Linear>(str("layers.", i), 6, 6));
    head_ = &child<Linear>("head", 6, 3);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = tanh((*layers_[0])(x));
    h = recomputed(h, trainable({layers_[1]}), [this](const Tensor& t) { return tanh((*layers_[1])(t)); });
    return (*head_)(tanh((*layers_[2])(h)));
  }

 private:
  std::vector<Linear*> layers_;
  Linear* head_;
};

TEST(Passes, ABlockThatTheRootComputesAgain) {
  Job job = mlp_job();
  job.make = [] { return std::make_unique<Wrapping>(); };
  job.parallel.bucket_mb = 0;
  const std::string expected = agreed_digest(job, 1);
  for (ShardLevel level : kShardLevels)
    for (int ranks : {2, 3}) {
      job.parallel.level = level;
      EXPECT_EQ(agreed_digest(job, ranks), expected) << where(job, ranks);
    }
}

// Blocks that read two tensors, one of them from far back, recomputed or not.
class Crossing : public Model {
 public:
  struct Block : ModuleOf<Tensor, Tensor> {
    Block() : a_(child<Linear>("a", 6, 6)), b_(child<Linear>("b", 6, 6)) {}
    Tensor forward(const Tensor& x, const Tensor& first) override { return add(tanh(a_(x)), mul(b_(first), x)); }
    Linear &a_, &b_;
  };
  explicit Crossing(bool again) : stem_(child<Linear>("stem", 6, 6)) {
    for (int i = 0; i < 3; ++i) blocks_.push_back(&child<Block>(str("blocks.", i)));
    head_ = &child<Linear>("head", 6, 3);
    for (Block* b : blocks_) b->set_recompute(again);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor first = tanh(stem_(x));
    Tensor h = first;
    for (Block* b : blocks_) h = (*b)(h, first);
    return (*head_)(h);
  }

 private:
  Linear& stem_;
  std::vector<Block*> blocks_;
  Linear* head_;
};

TEST(Passes, BlocksOfTwoTensors) {
  Job job = mlp_job();
  job.parallel.bucket_mb = 0;
  job.make = [] { return std::make_unique<Crossing>(false); };
  const std::string expected = agreed_digest(job, 1);
  for (bool again : {false, true})
    for (ShardLevel level : kShardLevels)
      for (int ranks : {1, 2, 3}) {
        job.make = [again] { return std::make_unique<Crossing>(again); };
        job.parallel.level = level;
        EXPECT_EQ(agreed_digest(job, ranks), expected) << where(job, ranks) << (again ? ", recomputed" : "");
      }
}

// The next block's parameters set out before this one has computed; gradients leave before backward ends.
TEST(Timeline, ParametersAndGradientsTravelBesideComputation) {
  Job job = gpt_job();
  job.make = [] { return std::make_unique<Gpt>(GptOptions{.layers = 6, .heads = 2, .width = 12}, TaskSpec{{6}, 11}); };
  job.parallel.bucket_mb = 0;
  job.parallel.level = ShardLevel::kParameters;
  job.micro_count = 2;
  for (const Outcome& o : train(job, 2)) {
    EXPECT_TRUE(o.overlapped);
    std::vector<Transfer> gathers;
    for (const Transfer& t : o.transfers)
      if (t.kind == Transfer::Kind::kGather) gathers.push_back(t);
    // The root, seven blocks forward, and six of them again backward.
    ASSERT_EQ(gathers.size(), 1u + 7u + 6u);
    int ahead = 0;
    for (size_t i = 2; i < gathers.size(); ++i) {
      EXPECT_LE(gathers[i].started_s, gathers[i].needed_s);
      EXPECT_LE(gathers[i].needed_s, gathers[i].ready_s);
      ahead += gathers[i - 1].ready_s <= gathers[i].started_s && gathers[i].started_s < gathers[i].needed_s;
    }
    EXPECT_EQ(ahead, 12) << "each sets out when the one before has arrived, and before it is needed";
  }
}

TEST(Limit, OnGatheredParametersIsKept) {
  Job job = gpt_job();
  job.parallel.bucket_mb = 0;
  job.parallel.level = ShardLevel::kParameters;
  const std::string expected = agreed_digest(job, 1);
  job.parallel.gathered_limit_mb = 0.0001;
  EXPECT_THROW(train(job, 2), Error);
  job.parallel.gathered_limit_mb = 0.012;  // one block and the root, not two
  EXPECT_EQ(agreed_digest(job, 2), expected);
  job.parallel.gathered_limit_mb = 100;  // everything: nothing is freed between forward and backward
  const std::vector<Outcome> all = train(job, 2);
  size_t gathers = 0;
  for (const Transfer& t : all[0].transfers) gathers += t.kind == Transfer::Kind::kGather;
  EXPECT_EQ(gathers, 4u + 2u) << "the root and three blocks; in the second round one of them is still there";
}

// Outside of its block's passes a parameter has no bytes, and reading it says so.
TEST(Parameters, AreInMemoryOnlyWhereUsed) {
  Job job = gpt_job();
  job.parallel.bucket_mb = 0;
  job.parallel.level = ShardLevel::kParameters;
  testing::run_ranks(2, [&](Communicator& comm) {
    auto model = job.make();
    DataParallel parallel(*model, comm, job.parallel);
    int64_t held = 0, all = 0;
    for (const Slot& s : parallel.slots()) held += s.master.numel(), all += s.region.numel();
    EXPECT_LT(held, all * 6 / 10) << "this rank has only its slices";
    for (auto& p : model->parameters()) EXPECT_FALSE(p.parameter->value.allocated()) << p.name;
    parallel.begin_step(2, 13 * 6);
    for (int64_t i : parallel.my_micro_batches()) {
      const IndexRange r = split_evenly(13, 2, i);
      WithRandom with({5, 0, std::make_shared<std::vector<int64_t>>(static_cast<size_t>(r.size()))});
      auto [loss, targets] = job.loss(*model, 0, r.begin, r.end);
      parallel.backward(i, loss, targets);
    }
    parallel.finish_step();
    for (auto& p : model->parameters()) EXPECT_FALSE(p.parameter->value.allocated()) << p.name;
    try {
      for (auto& p : model->parameters()) p.parameter->value.to_vector();
      ADD_FAILURE() << "read what is not there";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("released"), std::string::npos) << e.what();
    }
    // A forward pass of some ranks only, as at the end of an evaluation.
    double loss = 0;
    NoGrad no_grad;
    model->eval();
    for (int round = 0; round < 3; ++round)
      parallel.forward_round(1 + round % 2, [&] {
        WithRandom with({5, 0, std::make_shared<std::vector<int64_t>>(size_t(3))});
        loss = job.loss(*model, 1, 0, 3).first.item();
      });
    EXPECT_TRUE(comm.rank() > 1 || std::isfinite(loss));
  });
}

TEST(Group, MustDivideTheWorld) {
  Job job = mlp_job();
  job.parallel.level = ShardLevel::kGradients;
  job.parallel.group = 2;
  try {
    train(job, 3);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kConfig);
    EXPECT_NE(std::string(e.what()).find("sharding.group"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep::shard_levels_test
