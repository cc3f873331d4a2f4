// Whole runs on a GPU that the CPU plays: the bits of the CPU's run, at every number of ranks and level of sharding,
// saved on one and resumed on the other, evaluated, and compared by the sentinel.
#include <gtest/gtest.h>

#include <mutex>

#include "launch/saver.h"
#include "launch/trainer.h"
#include "launch/world.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using testing::fake_gpu;

constexpr DeviceOptions kCpu{DeviceChoice::kCpu, false};
constexpr DeviceOptions kGpu{DeviceChoice::kCuda, false};
constexpr DeviceOptions kSharedGpu{DeviceChoice::kCuda, true};

// Dropout, clipping, an uneven last micro-batch, and epochs that end within the run.
const char* const kText =
    "seed: 3\nbatch:\n  global: 11\n  micro: 2\nmodel:\n  name: gpt\n  layers: 2\n  heads: 2\n  width: 32\n"
    "  dropout: 0.1\noptim:\n  lr: 0.003\n  clip_norm: 0.2\nverify:\n  every: 2\n"
    "data:\n  name: synthetic_tokens\n  context: 16\n  validation: 0.2\n  synthetic:\n    tokens: 700\n"
    "    vocabulary: 40\n";
const char* const kImages =
    "seed: 3\nbatch:\n  global: 11\n  micro: 2\nmodel:\n  name: convnet\n  channels: [4, 8]\n  hidden: 16\n"
    "  dropout: 0.1\noptim:\n  lr: 0.003\n  clip_norm: 0.2\nverify:\n  every: 2\n"
    "data:\n  name: synthetic_images\n  validation: 0.2\n  synthetic:\n    images: 60\n    height: 10\n    width: 10\n";

struct Job {
  std::string yaml;
  int ranks = 1;
  DeviceOptions device = kCpu;
  int64_t steps = 6;
  std::string from = {};  // a checkpoint to resume
  std::string to = {};    // a folder to save into, at the end
};
struct Outcome {
  Hash128 digest;
  std::vector<double> losses;
  EvalReport eval;
  DeviceType device = DeviceType::kCpu;
  std::string backend;
  int code = 0;
  std::string problem = {};
};

Outcome run(const Job& job) {
  const App app = builtin();
  const auto settings = load_settings(app, ConfigTree::parse(job.yaml, "test.yaml"), job.ranks);
  SharedData data(app, *settings);
  Outcome out;
  std::mutex mutex;
  WorldOptions world;
  world.ranks = job.ranks;
  world.threads = 1;
  world.device = job.device;
  world.deadline_s = 20;
  std::string problem;
  world.on_failure = [&](const Error& e, int) { problem = e.what(); };
  const int code = run_world(world, [&](Communicator& comm) {
    Trainer trainer(*settings, data.open(comm), comm);
    if (!job.from.empty()) trainer.resume(open_checkpoint(job.from));
    std::vector<double> losses;
    while (trainer.steps_done() < job.steps) losses.push_back(trainer.step().result.loss);
    const EvalReport eval = trainer.evaluate();
    if (!job.to.empty()) {
      Saver saver(comm, job.to, {});
      saver.start(trainer.info(), trainer.mine());
      saver.finish();
    }
    Hash128 mine;
    for (const Hash128& h : digests_of(trainer.mine())) mine += h;
    std::lock_guard lock(mutex);
    out.digest += mine;
    if (comm.rank() != 0) return;
    out.digest += digest_of(trainer.info());
    out.losses = losses;
    out.eval = eval;
    out.device = current_device().type;
    out.backend = comm.backend();
  });
  out.code = code;
  out.problem = problem;
  return out;
}
Outcome outcome_of(const Job& job) {
  Outcome out = run(job);
  EXPECT_EQ(out.code, 0) << out.problem;
  return out;
}

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(to_hex(a.digest), to_hex(b.digest)) << what;
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.eval.loss, b.eval.loss) << what;
  EXPECT_EQ(a.eval.accuracy, b.eval.accuracy) << what;
  EXPECT_EQ(a.eval.targets, b.eval.targets) << what;
}

class GpuRun : public ::testing::TestWithParam<const char*> {
 protected:
  GpuRun() {
    fake_gpu();
    testing::fake_nccl();
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, GpuRun, ::testing::Values(kText, kImages),
                         [](const auto& info) { return info.param == kText ? "text" : "images"; });

TEST_P(GpuRun, OneRankHasTheCpusBits) {
  const Outcome cpu = outcome_of({GetParam()}), gpu = outcome_of({GetParam(), 1, kGpu});
  EXPECT_EQ(cpu.device, DeviceType::kCpu);
  EXPECT_EQ(gpu.device, DeviceType::kCuda);
  expect_same(cpu, gpu, "1 rank");
}

TEST_P(GpuRun, EveryNumberOfRanksAndLevelHasTheCpusBits) {
  const Outcome cpu = outcome_of({GetParam()});
  for (int ranks : {2, 4})
    for (const char* level : {"none", "optimizer", "gradients", "parameters"}) {
      const Outcome gpu = outcome_of({cat(GetParam(), "sharding:\n  level: ", level, "\n"), ranks, kGpu});
      EXPECT_EQ(gpu.backend, "nccl");
      expect_same(cpu, gpu, cat(ranks, " ranks, level ", level));
    }
}

TEST_P(GpuRun, SoHaveRanksThatShareAGpu) {
  const Outcome cpu = outcome_of({GetParam()});
  fake_gpu(0, {.devices = 1});
  for (int ranks : {2, 3})
    for (const char* level : {"none", "parameters"}) {
      const Outcome gpu = outcome_of({cat(GetParam(), "sharding:\n  level: ", level, "\n"), ranks, kSharedGpu});
      EXPECT_EQ(gpu.backend, "local");
      expect_same(cpu, gpu, cat(ranks, " ranks, level ", level));
    }
}

TEST_P(GpuRun, SavedOnOneDeviceAndResumedOnTheOther) {
  const Outcome whole = outcome_of({GetParam()});
  for (const DeviceOptions& first : {kCpu, kGpu}) {
    TemporaryFolder folder;
    fs::create_directory(folder / "checkpoints");
    const std::string to = folder / "checkpoints", level = "sharding:\n  level: parameters\n";
    outcome_of({GetParam(), 1, first, 3, "", to});
    const DeviceOptions second = first.choice == DeviceChoice::kCpu ? kGpu : kCpu;
    const Outcome rest = outcome_of({cat(GetParam(), level), 2, second, 6, cat(to, "/", checkpoint_name(3)), ""});
    EXPECT_EQ(to_hex(rest.digest), to_hex(whole.digest));
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
  }
}

TEST_P(GpuRun, OffloadAndLowPrecisionHaveTheCpusBits) {
  for (const char* more : {"sharding:\n  offload: optimizer\n", "precision:\n  compute: bf16\n  reduce: bf16\n",
                           "precision:\n  compute: fp16\nrecompute: block\n"}) {
    const std::string yaml = cat(GetParam(), more);
    if (GetParam() == kImages && yaml.find("recompute") != yaml.npos) continue;  // it has no blocks
    expect_same(outcome_of({yaml}), outcome_of({yaml, 2, kGpu}), more);
  }
}

// Recorded from the third step on; the last of each epoch has other shapes and is not.
TEST_P(GpuRun, ARecordedStepHasTheSameBits) {
  std::string yaml = GetParam();
  yaml.replace(yaml.find("dropout: 0.1"), 12, "dropout: 0.0");
  for (const char* more : {"", "precision:\n  compute: bf16\n"}) {
    const std::string plain = cat(yaml, more), recorded = cat("graph: true\n", plain);
    const Outcome expected = outcome_of({.yaml = plain, .device = kGpu, .steps = 12});
    expect_same(expected, outcome_of({.yaml = recorded, .device = kGpu, .steps = 12}), "1 rank");
    for (const char* level : {"none", "optimizer"})
      expect_same(
          expected,
          outcome_of(
              {.yaml = cat(recorded, "sharding:\n  level: ", level, "\n"), .ranks = 2, .device = kGpu, .steps = 12}),
          cat("2 ranks by NCCL, level ", level));
  }
}

TEST_P(GpuRun, WhatCannotBeRecordedIsRefused) {
  const auto refused = [&](const Job& job, const char* why) {
    const Outcome out = run(job);
    EXPECT_EQ(out.code, static_cast<int>(ExitCode::kConfig));
    EXPECT_NE(out.problem.find(why), std::string::npos) << out.problem;
  };
  const std::string yaml = cat("graph: true\n", GetParam());
  refused({yaml, 1, kGpu}, "dropout");
  refused({yaml, 1, kCpu}, "only a GPU's work");
  refused({cat(yaml, "sharding:\n  level: gradients\n"), 2, kGpu}, "sharding.level gradients");
  fake_gpu(0, {.devices = 1});
  refused({yaml, 2, kSharedGpu}, "by way of the host");
}

}  // namespace
}  // namespace lockstep
