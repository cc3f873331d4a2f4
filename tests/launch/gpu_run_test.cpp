// Whole runs on the fake GPU: the bits of the CPU's run, at every number of ranks and level of sharding,
// saved on one and resumed on the other, evaluated, and compared by the sentinel.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

#include <fstream>
#include <functional>
#include <limits>
#include <mutex>

#include "core/device/backend.h"
#include "core/nn/layers.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "data/import/import.h"
#include "launch/checkpoints/saver.h"
#include "launch/commands/commands.h"
#include "launch/training/step/shared_data.h"
#include "launch/training/step/trainer.h"
#include "launch/training/weights/trained_model.h"
#include "launch/world/world.h"
#include "optim/builtin.h"
#include "sharding/data_parallel.h"
#include "sharding/mesh.h"
#include "tests/support/files.h"
#include "tests/support/nccl_ranks.h"
#include "tests/support/planted_machines.h"

namespace lockstep::gpu_run_test {
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

std::string with(std::string yaml, const std::string& key, const std::string& other) {
  return yaml.replace(yaml.find(key), key.size(), other);
}

struct Job {
  std::string yaml;
  int ranks = 1;
  DeviceOptions device = kCpu;
  int64_t steps = 6;
  std::string from = {};  // a checkpoint to resume
  std::string to = {};    // a folder to save into, at the end
  int64_t evaluated_after = -1;
  int64_t reloaded_after = -1;  // takes the parameters of `from` then, in place of resuming it
  bool spoilt = false;          // some samples have no finite values
};
struct Outcome {
  Hash128 digest;
  std::vector<double> losses;
  EvalReport eval;
  DeviceType device = DeviceType::kCpu;
  std::string backend;
  int64_t ahead = 0, skipped = 0;  // most steps under way at once
  int code = 0;
  std::string problem = {};
};

// Samples of another dataset, some of them spoilt.
class Spoilt final : public Dataset {
 public:
  explicit Spoilt(std::shared_ptr<const Dataset> good) : good_(std::move(good)) {}
  int64_t size() const override { return good_->size(); }
  const DataSpec& spec() const override { return good_->spec(); }
  Hash128 identity() const override { return good_->identity(); }
  const Vocabulary* vocabulary() const override { return good_->vocabulary(); }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override {
    good_->read(epoch, index, sample);
    if (index % 16 != 5) return;
    if (spec().unit == "tokens") static_cast<int32_t*>(sample[0])[2] = 1000;
    else static_cast<float*>(sample[0])[7] = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  const std::shared_ptr<const Dataset> good_;
};

class SpoiltSource final : public DataSource {
 public:
  explicit SpoiltSource(std::unique_ptr<DataSource> good) : good_(std::move(good)) {}
  std::vector<Field> options(DataOptions& common) override { return good_->options(common); }
  Datasets open(const DataOptions& common, uint64_t seed) const override {
    Datasets d = good_->open(common, seed);
    d.train = std::make_shared<Spoilt>(d.train);
    return d;
  }

 private:
  const std::unique_ptr<DataSource> good_;
};

App spoilt() {
  App app = builtin();
  for (auto& c : app.data) c.make = [good = c.make] { return std::make_unique<SpoiltSource>(good()); };
  return app;
}

Outcome run(const Job& job) {
  const App app = job.spoilt ? spoilt() : builtin();
  const auto settings = load_settings(app, ConfigTree::parse(job.yaml, "test.yaml"), job.ranks);
  SharedData data(*settings);
  Outcome out;
  std::mutex mutex;
  WorldOptions world;
  world.ranks = job.ranks;
  world.threads = 1;
  world.device = job.device;
  world.deadline_s = 300;
  std::string problem;
  world.on_failure = [&](const Error& e, int) { problem = e.what(); };
  const int code = run_world(world, [&](Communicator& comm) {
    Trainer trainer(*settings, data.open(comm), comm);
    int64_t ahead = 0;
    if (!job.from.empty() && job.reloaded_after < 0) trainer.resume(open_checkpoint(job.from));
    std::vector<double> losses;
    while (trainer.steps_done() < job.steps) {
      const auto looked_at = [&](int64_t step) { return step == job.evaluated_after || step == job.reloaded_after; };
      while (trainer.may_start() && trainer.steps_started() < job.steps &&
             (trainer.steps_started() == trainer.steps_done() || !looked_at(trainer.steps_started())))
        trainer.start();
      ahead = std::max(ahead, trainer.steps_started() - trainer.steps_done());
      losses.push_back(trainer.finish().result.loss);
      if (trainer.steps_done() == job.evaluated_after) trainer.evaluate();
      if (trainer.steps_done() == job.reloaded_after) trainer.load_parameters(open_checkpoint(job.from));
    }
    const EvalReport eval = trainer.evaluate();
    if (!job.to.empty()) {
      Saver saver(comm, job.to, {});
      saver.start(trainer.info(), trainer.entries_to_save());
      saver.finish();
    }
    Hash128 mine;
    for (const Hash128& h : digests_of(trainer.entries_to_save())) mine += h;
    std::lock_guard lock(mutex);
    out.digest += mine;
    if (comm.rank() != 0) return;
    out.digest += digest_of(trainer.info());
    out.losses = losses;
    out.ahead = ahead;
    out.skipped = trainer.info().skipped;
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
  EXPECT_EQ(a.eval.metrics, b.eval.metrics) << what;
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

TEST(Gpus, RanksThatAreThreadsLoadAllKernelsWithTheDriver) {
  fake_gpu();
  testing::fake_nccl();
  const auto loading = [](int ranks, const DeviceOptions& device) {
    WorldOptions world;
    world.ranks = ranks, world.device = device, world.threads = 1;
    run_world(world, [](Communicator&) {});
    const char* value = std::getenv("CUDA_MODULE_LOADING");
    return std::string(value ? value : "");
  };
  ::unsetenv("CUDA_MODULE_LOADING");
  EXPECT_EQ(loading(1, kGpu), "");
  EXPECT_EQ(loading(2, kCpu), "");
  EXPECT_EQ(loading(2, kGpu), "EAGER");
  ::setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  EXPECT_EQ(loading(2, kGpu), "LAZY") << "the user's own word stands";
  ::unsetenv("CUDA_MODULE_LOADING");
  ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  EXPECT_EQ(loading(2, kSharedGpu), "") << "ranks that share a GPU do not use NCCL";
  ::setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
  EXPECT_EQ(loading(2, kGpu), "EAGER");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ::unsetenv("CUDA_MODULE_LOADING");
}

TEST(Gpus, LaunchesOfCommunicatorsAreOrdered) {
  fake_gpu();
  testing::fake_nccl();
  const auto seen = [](const DeviceOptions& device) {
    WorldOptions world;
    world.ranks = 1, world.device = device, world.threads = 1;
    run_world(world, [](Communicator&) {});
    const auto value = [](const char* name) {
      const char* set = std::getenv(name);
      return std::string(set ? set : "unset");
    };
    return str(value("NCCL_LAUNCH_ORDER_IMPLICIT"), " ", value("CUDA_DEVICE_MAX_CONNECTIONS"));
  };
  for (const char* name : {"NCCL_LAUNCH_ORDER_IMPLICIT", "CUDA_DEVICE_MAX_CONNECTIONS"}) ::unsetenv(name);
  EXPECT_EQ(seen(kCpu), "unset unset");
  EXPECT_EQ(seen(kGpu), "1 32");
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  EXPECT_EQ(seen(kGpu), "0 1") << "the user's own words stand";
  for (const char* name : {"NCCL_LAUNCH_ORDER_IMPLICIT", "CUDA_DEVICE_MAX_CONNECTIONS"}) ::unsetenv(name);
}

// Gradients that differ each time would name a healthy rank.
TEST(Gpus, FastAttentionAndRecomputedGradientsExcludeEachOther) {
  fake_gpu(0, {.tries = "fast_attention"});
  testing::fake_nccl();
  const std::string yaml =
      "batch: {global: 4, micro: 1}\nmodel: {name: gpt, layers: 1, heads: 2, width: 16}\nverify: {recompute: 1}\n"
      "data: {name: synthetic_tokens, context: 8, synthetic: {tokens: 500, vocabulary: 40}}\n";
  const App app = builtin();
  const auto settings = load_settings(app, ConfigTree::parse(yaml, "t.yaml"), 2);
  SharedData data(*settings);
  const auto trainer = [&](const DeviceOptions& device) {
    std::string said;
    std::mutex mutex;
    WorldOptions world;
    world.ranks = 2, world.device = device, world.threads = 1;
    run_world(world, [&](Communicator& comm) {
      try {
        const Trainer trainer(*settings, data.open(comm), comm);
      } catch (const Error& e) {
        std::lock_guard lock(mutex);
        if (e.code() == ExitCode::kConfig && !e.is_secondary()) said = e.what();  // one rank says it for all
      }
    });
    return said;
  };
  EXPECT_NE(trainer(kGpu).find("with fast_attention in LOCKSTEP_CUDA_TRY"), std::string::npos);
  EXPECT_EQ(trainer(kCpu), "");
  fake_gpu();
  EXPECT_EQ(trainer(kGpu), "");
}

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
      const Outcome gpu = outcome_of({str(GetParam(), "sharding:\n  level: ", level, "\n"), ranks, kGpu});
      EXPECT_EQ(gpu.backend, "nccl");
      expect_same(cpu, gpu, str(ranks, " ranks, level ", level));
    }
}

// The GPUs of a machine add up what they have first, and machines exchange that.
TEST_P(GpuRun, MachinesOfSeveralGpusHaveTheCpusBits) {
  fake_gpu(0, {.devices = 6});
  const Outcome cpu = outcome_of({GetParam()});
  for (int machine_ranks : {1, 2, 3})
    for (const char* level : {"none", "optimizer", "gradients", "parameters"})
      for (const char* wire : {"fp32", "bf16"}) {
        const std::string yaml = str(GetParam(), "sharding:\n  level: ", level, "\nprecision:\n  reduce: ", wire, "\n");
        const testing::PlantedMachines planted(machine_ranks);
        const Outcome gpu = outcome_of({yaml, 2 * machine_ranks, kGpu});
        EXPECT_EQ(gpu.backend, "nccl");
        const std::string what = str("2 machines of ", machine_ranks, " GPUs, level ", level, ", reduced in ", wire);
        expect_same(wire == std::string("fp32") ? cpu : outcome_of({yaml}), gpu, what);
      }
  const testing::PlantedMachines planted(2);
  testing::run_nccl_ranks(6, [](Communicator& comm) {
    const Mesh mesh(Axis(comm), 1);
    EXPECT_EQ(mesh.machines().machines, 3);
    EXPECT_EQ(mesh.machine().size, 2);
    EXPECT_EQ(mesh.machine().index, comm.rank() % 2);
    EXPECT_EQ(mesh.machine().comm().backend(), "nccl");
    EXPECT_EQ(mesh.lane().size, 3);
    EXPECT_EQ(mesh.lane().index, comm.rank() / 2);
  });
}

TEST_P(GpuRun, GradientsComputedOnceMoreChangeNothing) {
  const Outcome cpu = outcome_of({GetParam()});
  const std::string yaml = with(GetParam(), "every: 2", "every: 2\n  recompute: 2");
  for (const char* level : {"none", "parameters"})
    expect_same(cpu, outcome_of({str(yaml, "sharding:\n  level: ", level, "\n"), 3, kGpu}), level);
  const std::string still = with(yaml, "dropout: 0.1", "dropout: 0.0");
  expect_same(outcome_of({still}), outcome_of({still + "graph: true\n", 2, kGpu}), "recorded");
}

TEST_P(GpuRun, SoHaveRanksThatShareAGpu) {
  const Outcome cpu = outcome_of({GetParam()});
  fake_gpu(0, {.devices = 1});
  for (int ranks : {2, 3})
    for (const char* level : {"none", "parameters"}) {
      const Outcome gpu = outcome_of({str(GetParam(), "sharding:\n  level: ", level, "\n"), ranks, kSharedGpu});
      EXPECT_EQ(gpu.backend, "local");
      expect_same(cpu, gpu, str(ranks, " ranks, level ", level));
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
    const Outcome rest = outcome_of({str(GetParam(), level), 2, second, 6, str(to, "/", checkpoint_name(3)), ""});
    EXPECT_EQ(to_hex(rest.digest), to_hex(whole.digest));
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
  }
}

TEST_P(GpuRun, OffloadAndLowPrecisionHaveTheCpusBits) {
  for (const char* more : {"sharding:\n  offload: optimizer\n", "precision:\n  compute: bf16\n  reduce: bf16\n",
                           "precision:\n  compute: fp16\nrecompute: block\n"}) {
    const std::string yaml = str(GetParam(), more);
    if (GetParam() == kImages && yaml.find("recompute") != yaml.npos) continue;  // it has no blocks
    expect_same(outcome_of({yaml}), outcome_of({yaml, 2, kGpu}), more);
  }
}

// Recorded from the third step on, right after an evaluation has made the parameters' copies; the last of each epoch
// has other shapes and is not.
TEST_P(GpuRun, ARecordedStepHasTheSameBits) {
  const std::string yaml = with(GetParam(), "dropout: 0.1", "dropout: 0.0");
  for (const char* more : {"", "precision:\n  compute: bf16\n"}) {
    const std::string plain = str(yaml, more), recorded = str("graph: true\n", plain);
    const Outcome expected = outcome_of({.yaml = plain, .device = kGpu, .steps = 12, .evaluated_after = 2});
    expect_same(expected, outcome_of({.yaml = recorded, .device = kGpu, .steps = 12, .evaluated_after = 2}), "1 rank");
    for (const char* level : {"none", "optimizer"})
      expect_same(expected,
                  outcome_of({.yaml = str(recorded, "sharding:\n  level: ", level, "\n"),
                              .ranks = 2,
                              .device = kGpu,
                              .steps = 12,
                              .evaluated_after = 2}),
                  str("2 ranks by NCCL, level ", level));
  }
}

// Groups large enough that NCCL's ranks register them: whole parameters, and the gradients of `reduce: fast`.
TEST(GpuRunRegistered, HasTheBitsOfPlainMemory) {
  fake_gpu();
  testing::fake_nccl();
  const std::string yaml =
      "seed: 3\nbatch:\n  global: 11\n  micro: 2\nmodel:\n  name: mlp\n  hidden: [640, 640, 640]\n"
      "optim:\n  lr: 0.003\ncomm:\n  bucket: 1\n"
      "data:\n  name: synthetic_images\n  validation: 0.2\n  synthetic:\n    images: 60\n    height: 10\n"
      "    width: 10\n";
  const auto direct = [](const Job& job) {
    const int64_t before = testing::fake_nccl_direct();
    Outcome out = outcome_of(job);
    return std::pair(std::move(out), testing::fake_nccl_direct() - before);
  };
  const Outcome cpu = outcome_of({yaml});
  for (const char* level : {"optimizer", "gradients"}) {
    const auto [gpu, moved] = direct({str(yaml, "sharding:\n  level: ", level, "\n"), 2, kGpu});
    expect_same(cpu, gpu, level);
    EXPECT_GT(moved, 0) << level;
  }
  for (const char* level : {"none", "optimizer"})
    for (int ranks : {2, 4}) {
      const std::string fast = str(yaml, "reduce: fast\nsharding:\n  level: ", level, "\n");
      testing::fake_nccl({.windows = false});
      const auto [plain, none] = direct({fast, ranks, kGpu});
      testing::fake_nccl();
      const auto [gpu, moved] = direct({fast, ranks, kGpu});
      const auto [recorded, again] = direct({str("graph: true\n", fast), ranks, kGpu});
      expect_same(plain, gpu, str("fast, ", level));
      expect_same(plain, recorded, str("fast and recorded, ", level));
      EXPECT_EQ(none, 0) << level;
      EXPECT_GT(moved, 0) << level;
      EXPECT_EQ(again, moved) << level;
    }
  EXPECT_EQ(testing::fake_nccl_misuse(), std::vector<std::string>());
}

// The host learns that a step was skipped when the next one is under way; fp16, whose loss scale depends on it, waits.
TEST(GpuRunAhead, ASkippedStepIsNoUpdateOfTheNextEither) {
  fake_gpu();
  testing::fake_nccl();
  for (const char* more : {"", "optim.name=sgd", "precision:\n  compute: bf16\n", "precision:\n  compute: fp16\n"}) {
    std::string yaml = str(kImages, more);
    if (yaml.ends_with("optim.name=sgd")) yaml = with(kImages, "optim:\n", "optim:\n  name: sgd\n  momentum: 0.9\n");
    const Outcome cpu = outcome_of({.yaml = yaml, .steps = 12, .spoilt = true});
    EXPECT_GT(cpu.skipped, 1);
    EXPECT_LT(cpu.skipped, 11);
    for (int ranks : {1, 2}) {
      const Outcome gpu = outcome_of({.yaml = yaml, .ranks = ranks, .device = kGpu, .steps = 12, .spoilt = true});
      EXPECT_EQ(gpu.ahead, std::string(more).find("fp16") == std::string::npos ? 2 : 1);
      EXPECT_EQ(gpu.skipped, cpu.skipped);
      EXPECT_EQ(to_hex(gpu.digest), to_hex(cpu.digest)) << ranks << " ranks, " << more;
    }
  }
}

// The host sets out a whole step while the GPU has not begun it.
TEST(GpuRunAhead, NoStepWaitsForTheGpu) {
  testing::fake_nccl();
  const std::string images = with(kImages, "dropout: 0.1", "dropout: 0.0");
  struct Case {
    const char* more;
    int ranks;
  };
  for (const auto& [more, ranks] :
       {Case{"", 1}, Case{"", 3}, Case{"sharding:\n  level: optimizer\n", 2},
        Case{"sharding:\n  level: gradients\n", 2}, Case{"sharding:\n  level: parameters\n", 2},
        Case{"comm:\n  bucket: 0\nsharding:\n  level: gradients\n", 3},
        Case{"comm:\n  bucket: 0\nsharding:\n  level: parameters\n", 3},
        Case{"sharding:\n  level: gradients\n  group: 2\n", 4},
        Case{"precision:\n  compute: bf16\nsharding:\n  level: optimizer\n", 2}, Case{"graph: true\n", 2}}) {
    fake_gpu();
    const App app = builtin();
    const auto settings = load_settings(app, ConfigTree::parse(str(images, more), "test.yaml"), ranks);
    SharedData data(*settings);
    std::atomic<int> late = 0;
    testing::run_nccl_ranks(ranks, [&](Communicator& comm) {
      Trainer trainer(*settings, data.open(comm), comm);
      for (int i = 0; i < 6; ++i) trainer.step();  // the next is a whole one, and not verified
      std::promise<void> gate;
      testing::fake_gpu_enqueue(*current_stream().device_queue(), [&late, open = gate.get_future().share()] {
        if (open.wait_for(std::chrono::seconds(120)) == std::future_status::timeout) ++late;
      });
      trainer.start({.save = comm.rank() == comm.size() - 1});
      EXPECT_TRUE(trainer.may_start());
      gate.set_value();
      const StepReport r = trainer.finish();
      EXPECT_EQ(r.step, 7);
      EXPECT_TRUE(r.result.requests.save) << "what one rank asks for, also where a graph is launched";
      EXPECT_FALSE(r.result.requests.stop);
    });
    EXPECT_EQ(late, 0) << ranks << " ranks, " << more;
  }
}

// Of its blocks a micro-batch uses those whose bits are set in `used`.
struct Blocks final : ModuleOf<Tensor> {
  Blocks() {
    for (int i = 0; i < 7; ++i) all.push_back(&child<Linear>(str("block", i), 8, 8, true, Init::normal(0.4)));
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = mul(x, scale);
    for (size_t i = 0; i < all.size(); ++i)
      if (used >> i & 1) h = tanh((*all[i])(h));
    return h;
  }
  Tensor& scale = parameter("scale", {1}, Init::ones());
  std::vector<Linear*> all;
  int used = 0;
};

// A rank that does not use a block starts the exchange of its gradients with zeros: in time, as queues wait for that.
TEST(GpuRunAhead, BlocksThatSomeRanksDoNotUseHoldUpNone) {
  const auto trained = [](Communicator& comm, ShardLevel level, int64_t micro_count) {
    DataParallelOptions options;
    options.level = level, options.bucket_mb = 0;
    Blocks model;
    DataParallel parallel(model, comm, options);
    const auto optimizer = make_sgd({.lr = 0.1}, parallel.slots());
    std::vector<double> said;
    for (int64_t step = 0; step < 6; ++step) {
      parallel.begin_step(micro_count, micro_count);
      for (const int64_t m : parallel.my_micro_batches()) {
        constexpr int kUsed[] = {0b1111111, 0b1000000, 0b0000001, 0b0010100, 0, 0b0111111, 0b1111110, 0b1010101};
        model.used = kUsed[(3 * step + m) % 8];
        const Tensor x = raw::to_device(Tensor::full({2, 8}, 0.1F * static_cast<float>(m + 1)), current_device());
        parallel.backward(m, sum(model(x)), 1);
      }
      const StepResult result = parallel.finish_step();
      said.insert(said.end(), {result.loss, result.grad_norm});
      optimizer->step(parallel.slots(), result);
    }
    return said;
  };
  for (const int64_t micro_count : {6, 5}) {
    std::vector<double> wanted;
    testing::run_ranks(1, [&](Communicator& comm) { wanted = trained(comm, ShardLevel::kNone, micro_count); });
    for (const ShardLevel level : {ShardLevel::kGradients, ShardLevel::kParameters})
      for (const int ranks : {2, 3}) {
        std::vector<double> got;
        testing::run_nccl_ranks(ranks, [&](Communicator& comm) {
          const std::vector<double> mine = trained(comm, level, micro_count);
          if (comm.rank() == 0) got = mine;
        });
        EXPECT_EQ(got, wanted) << to_text(level) << ", " << ranks << " ranks, " << micro_count << " micro-batches";
      }
  }
}

// The graph holds no copy of the masters into the compute type: updates write that.
TEST_P(GpuRun, ARecordedStepSeesParametersThatWereLoaded) {
  TemporaryFolder folder;
  fs::create_directory(folder / "checkpoints");
  const std::string to = folder / "checkpoints", yaml = with(GetParam(), "dropout: 0.1", "dropout: 0.0"),
                    low = str(yaml, "precision:\n  compute: bf16\n");
  outcome_of({.yaml = low, .device = kGpu, .steps = 2, .to = to});
  const std::string from = str(to, "/", checkpoint_name(2));
  const Outcome plain = outcome_of({.yaml = low, .device = kGpu, .steps = 9, .from = from, .reloaded_after = 7});
  expect_same(
      plain,
      outcome_of({.yaml = str("graph: true\n", low), .device = kGpu, .steps = 9, .from = from, .reloaded_after = 7}),
      "recorded");
}

TEST(GpuRunAhead, ARecordedStepThatARankIsMissingFromEndsWithTheDeadline) {
  testing::fake_nccl();
  const std::string yaml = str(with(kImages, "dropout: 0.1", "dropout: 0.0"), "graph: true\ncomm:\n  deadline: 300\n");
  const App app = builtin();
  const auto settings = load_settings(app, ConfigTree::parse(yaml, "test.yaml"), 2);
  SharedData data(*settings);
  std::promise<void> over;
  std::string said;
  const auto body = [&](Communicator& comm) {
    Trainer trainer(*settings, data.open(comm), comm);
    for (int i = 0; i < 6; ++i) trainer.step();
    comm.barrier("both have done six steps");
    if (comm.rank() == 1) {
      over.get_future().wait_for(std::chrono::seconds(120));
      return;
    }
    settings->deadline = 3;  // short, now that it is to pass
    try {
      trainer.step();
    } catch (const Error& e) {
      said = e.what();
    }
    over.set_value();
    throw Error(ExitCode::kRankLost, said);
  };
  EXPECT_THROW(testing::run_nccl_ranks(2, body), Error);
  for (const char* part : {"step 7, which ran as a CUDA graph: not done within 3 s", "graph: false", "comm.deadline"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

TEST_P(GpuRun, WhatCannotBeRecordedIsRefused) {
  const auto refused = [&](const Job& job, const char* why) {
    const Outcome out = run(job);
    EXPECT_EQ(out.code, static_cast<int>(ExitCode::kConfig));
    EXPECT_NE(out.problem.find(why), std::string::npos) << out.problem;
  };
  const std::string yaml = str("graph: true\n", GetParam());
  refused({yaml, 1, kGpu}, "dropout");
  refused({yaml, 1, kCpu}, "only a GPU's work");
  for (int ranks : {1, 2})
    refused({str(yaml, "sharding:\n  level: gradients\n"), ranks, kGpu}, "sharding.level gradients");
  fake_gpu(0, {.devices = 1});
  refused({yaml, 2, kSharedGpu}, "through host memory");
}

// What a run of a few steps ends with, where `meddle` may change the state before step 4, and `data` the samples.
struct End {
  int code = 0;
  std::string text;
};
using Meddle = std::function<void(Communicator&, Trainer&)>;
End end_of(const std::string& yaml, int ranks, DeviceType device, const App& app, const Meddle& meddle = {}) {
  const auto settings = load_settings(app, ConfigTree::parse(yaml, "test.yaml"), ranks);
  SharedData data(*settings);
  End end;
  std::mutex mutex;
  const auto body = [&](Communicator& comm) {
    try {
      Trainer trainer(*settings, data.open(comm), comm);
      for (int i = 1; i <= 8; ++i) {
        if (i == 4 && meddle) meddle(comm, trainer);
        trainer.step();
      }
    } catch (const Error& e) {
      std::lock_guard lock(mutex);
      if (!e.is_secondary() && e.code() != ExitCode::kRankLost) end = {static_cast<int>(e.code()), e.what()};
      throw;
    }
  };
  try {
    if (device == DeviceType::kCuda) testing::run_nccl_ranks(ranks, body);
    else testing::run_ranks(ranks, body);
  } catch (const Error&) {
    // The rank that says why has said it.
  }
  return end;
}

TEST_P(GpuRun, AFlippedBitIsFound) {
  std::string tensor;
  const End end = end_of(GetParam(), 3, DeviceType::kCuda, builtin(), [&](Communicator& comm, Trainer& trainer) {
    if (comm.rank() != 2) return;
    const StateEntry e = trainer.state()[0];
    const Tensor host = raw::to_host(e.data);
    host.mutable_values<float>()[3] += 1;
    raw::copy(e.data, host);
    tensor = e.name;
  });
  EXPECT_EQ(end.code, static_cast<int>(ExitCode::kRanksDisagree));
  EXPECT_TRUE(end.text.starts_with("step 4: rank 2 holds other values than the other 2 ranks in ")) << end.text;
  EXPECT_NE(end.text.find(tensor), end.text.npos) << end.text;
}

TEST_P(GpuRun, BadValuesAreNamedAsOnTheCpu) {
  const App app = spoilt();
  const std::string yaml = str(GetParam(), "train:\n  anomaly: true\n");
  const End cpu = end_of(yaml, 1, DeviceType::kCpu, app);
  const bool text = GetParam() == kText;
  EXPECT_EQ(cpu.code, static_cast<int>(text ? ExitCode::kBadData : ExitCode::kNumeric)) << cpu.text;
  EXPECT_NE(cpu.text.find(text ? "embedding: index 1000 at position " : "anomaly: the result of conv2d "),
            cpu.text.npos)
      << cpu.text;
  for (int ranks : {1, 2}) {
    const End gpu = end_of(yaml, ranks, DeviceType::kCuda, app);
    EXPECT_EQ(gpu.code, cpu.code) << ranks << " ranks: " << gpu.text;
    const std::string same = cpu.text.substr(0, cpu.text.find(text ? " at position" : "; it is"));
    EXPECT_TRUE(gpu.text.starts_with(same)) << gpu.text;
  }
}

// --- Whole commands

std::string said_by(const std::function<int()>& command) {
  ::testing::internal::CaptureStdout();
  int code = 0;
  std::string problem;
  try {
    code = command();
  } catch (const Error& e) {
    problem = e.what();
  }
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0) << out;
  EXPECT_EQ(problem, "");
  return out;
}

TEST(GpuCommands, ARunIsTrainedResumedMeasuredAndContinuedOnAGpu) {
  fake_gpu();
  testing::fake_nccl();
  const App app = builtin();
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += i % 7 ? "the cat sat " : "on a mat. ";
  std::ofstream(folder / "text.txt") << text;
  import_text({folder / "text.txt"}, folder / "text.h5", TextLevel::kChar);
  std::ofstream(folder / "text.yaml")
      << "seed: 3\nbatch:\n  global: 8\n  micro: 2\nmodel:\n  name: gpt\n  layers: 2\n  heads: 2\n  width: 32\n"
         "schedule:\n  name: constant\ntrain:\n  steps: 8\ncompute:\n  threads: 1\n"
         "data:\n  context: 16\n  validation: 0.1\n  path: "
      << folder / "text.h5"
      << "\n";
  const std::string yaml = folder / "text.yaml", on_cpu = folder / "cpu", on_gpu = folder / "gpu";

  EXPECT_EQ(train_command(app, {yaml, "run.dir=" + on_cpu, "device=cpu"}), 0);
  EXPECT_EQ(train_command(app, {yaml, "run.dir=" + on_gpu, "device=cuda", "train.steps=5", "checkpoint.every=2",
                                "sharding.level=parameters", "--ranks", "2"}),
            0);
  EXPECT_EQ(train_command(app, {yaml, "run.dir=" + on_gpu, "device=cuda", "sharding.level=optimizer", "--ranks", "4",
                                "--resume"}),
            0);
  EXPECT_EQ(to_hex(digest_of(open_newest(on_gpu))), to_hex(digest_of(open_newest(on_cpu))));

  const auto loss_in = [](const std::string& line) { return line.substr(line.find("\"loss\"")); };
  EXPECT_EQ(loss_in(said_by([&] { return eval_command(app, {on_gpu}); })), loss_in(said_by([&] {
              return eval_command(app, {on_cpu, "device=cpu"});
            })));
  const auto continued = [&] {
    return said_by([&] { return generate_command(app, {on_gpu, "--tokens", "30", "--prompt", "the"}); });
  };
  const std::string there = continued();
  // Texts of several lengths are padded, and attention keeps the padding apart: by a library that is proven first.
  int proofs = 0;
  fake_gpu(0, {.doubt = [&] { return ++proofs, std::string(); }});
  {
    Stream stream({DeviceType::kCuda, 0}, Stream::Mode::kInline);
    const WithStream with(stream);
    const TrainedModel model(on_gpu, app, {"precision.compute=bf16"});
    EXPECT_EQ(stream.device_queue()->trusted_masks(), (MaskedAttentions{{DType::kBFloat16, 16, 1, 0, true}}));
    EXPECT_EQ(proofs, 1);
  }
  fake_gpu();
  // Another number of rows of the loss at a time: a GPU's library may sum them in another order.
  const auto with_rows = [&](const std::string& run, const std::string& device, const std::string& rows) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(train_command(app, {yaml, "run.dir=" + run, "device=" + device, "train.steps=9", "--resume",
                                  "train.loss_rows=" + rows}),
              0);
    return ::testing::internal::GetCapturedStderr();
  };
  std::filesystem::copy(on_gpu, folder / "same", std::filesystem::copy_options::recursive);
  const std::string warning = "resuming with train.loss_rows: 64 what was trained with 0: on a GPU";
  std::filesystem::copy(on_gpu, folder / "cpu_again", std::filesystem::copy_options::recursive);
  EXPECT_EQ(with_rows(folder / "same", "cuda", "0").find("loss_rows"), std::string::npos);
  EXPECT_EQ(with_rows(folder / "cpu_again", "cpu", "64").find("loss_rows"), std::string::npos);
  std::filesystem::copy(on_gpu, folder / "other", std::filesystem::copy_options::recursive);
  EXPECT_NE(with_rows(folder / "other", "cuda", "64").find(warning), std::string::npos);
  const std::string bench = said_by([&] { return bench_command(app, {yaml, "--steps", "2", "--warmup", "1"}); });
  EXPECT_NE(bench.find("\"device\":\"cuda:0\""), bench.npos) << bench;
  EXPECT_NE(bench.find("\"parameters_bytes\":"), bench.npos) << bench;
  const std::string parts = said_by([&] {
    return bench_command(app, {yaml, "--steps", "2", "--warmup", "1", "--breakdown"});
  });
  EXPECT_TRUE(parts.starts_with("rank 0, mean of 2 steps; the host's time, not the GPU's\n")) << parts;
  EXPECT_NE(parts.find("\nlinear backward "), parts.npos) << parts;
  EXPECT_EQ(parts.find("limits of"), parts.npos) << parts;
  const std::string proof = said_by([&] {
    return prove_command(app, {yaml, "--ranks", "1,2", "--levels", "none,parameters", "--steps", "2", "--resume"});
  });
  EXPECT_NE(proof.find("nccl"), proof.npos) << proof;
  set_device_backend(nullptr);
  EXPECT_EQ(there, continued()) << "on the CPU";
}

}  // namespace
}  // namespace lockstep::gpu_run_test
