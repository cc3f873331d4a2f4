// What GPUs of one or several machines hold: by hand, and against what a plan of them counts.
#include <gtest/gtest.h>

#include <fstream>

#include "core/device/allocator.h"
#include "launch/commands/commands.h"
#include "launch/training/loop/step_plan.h"
#include "launch/world/memory_report.h"
#include "launch/world/world.h"
#include "tests/support/files.h"
#include "tests/support/nccl_ranks.h"
#include "tests/support/planted_machines.h"

namespace lockstep::gpu_memory_test {
namespace {

struct Case {
  std::string level = "none";
  int machines = 2, machine_ranks = 2, micro_batches = 1;  // of a rank
  std::string more = {};
  int width = 512;
  std::string name() const {
    return str("level ", level, ", ", machines, " machines of ", machine_ranks, ", ", micro_batches,
               " micro-batches a rank", more.empty() ? "" : ", ", more);
  }
};

// Eight layers of as many inputs and outputs, with a bucket for each.
std::unique_ptr<Settings> settings_of(const Case& c, bool gpus) {
  const int ranks = c.machines * c.machine_ranks, w = c.width;
  return load_settings(
      builtin(),
      ConfigTree::parse(
          str("seed: 3\nbatch: {global: ", ranks * c.micro_batches, ", micro: 1}\n", "model: {name: mlp, hidden: [", w,
              ", ", w, ", ", w, ", ", w, ", ", w, ", ", w, ", ", w, ", ", w, "]}\ncomm: {bucket: 0}\n",
              "data: {name: synthetic_images, validation: 0, synthetic: {images: 64, height: ", w / 32,
              ", width: 32, classes: 10}}\nsharding: {level: ", c.level, "}\ndevice: ", gpus ? "cuda" : "cpu", "\n",
              c.more),
          "test.yaml"),
      ranks);
}

// Peaks of rank 0 in its second and third step.
AllocatorStats measured(const Case& c) {
  testing::fake_gpu(0, {.devices = c.machines * c.machine_ranks});
  testing::fake_nccl({.windows = false});  // which are whole pieces of 2 MB
  const testing::PlantedMachines planted(c.machine_ranks);
  const auto settings = settings_of(c, true);
  SharedData data(*settings);
  WorldOptions world;
  world.ranks = c.machines * c.machine_ranks;
  world.threads = 1;
  world.device = settings->device;
  world.deadline_s = 300;
  std::string problem;
  world.on_failure = [&](const Error& e, int) { problem = e.what(); };
  AllocatorStats out;
  const int code = run_world(world, [&](Communicator& comm) {
    Trainer trainer(*settings, data.open(comm), comm);
    trainer.step();
    reset_peak_bytes(current_device());
    trainer.step();
    trainer.step();
    EXPECT_EQ(comm.backend(), "nccl");
    if (comm.rank() == 0) out = allocator_stats(current_device());
  });
  EXPECT_EQ(code, 0) << problem;
  return out;
}

AllocatorStats planned(const Case& c, bool gpus = true) {
  const auto settings = settings_of(c, gpus);
  make_plannable(*settings);
  SharedData data(*settings);
  return plan_step(*settings, data, c.machines * c.machine_ranks, PlannedRanks::kFirst, c.machine_ranks).stats;
}

constexpr int64_t kLayer = 4 * (512 * 512 + 512), kHead = 4 * 64 * 84;  // bytes of a bucket; 81 chunks, 84 for 4 ranks
constexpr int64_t kLayers = 8 * kLayer + kHead;

// On machines of two GPUs each sum is arranged by receivers (1 buffer), gets half of it from the other GPU and a
// quarter from the other machine. Two exchanges are under way at a time, and a quarter of each sum stays.
TEST(GpuMemory, SeveralMachinesGiveBackWhatWasSent) {
  const int64_t exchanges = 2 * (kLayer + kLayer / 2 + kLayer / 4), sums = kLayers / 4;
  for (const int micro_batches : {1, 2, 4}) {
    const Case c{.micro_batches = micro_batches};
    // Sums that wait in the tree, and the gradient that is computed.
    const int64_t leaves = micro_batches == 4 ? 3 : micro_batches;
    const int64_t expected = leaves * kLayers + exchanges + sums;
    EXPECT_EQ(measured(c).peak_of(MemoryUse::kGradients), expected) << c.name();
    EXPECT_EQ(planned(c).peak_of(MemoryUse::kGradients), expected) << c.name();
  }
}

// GPUs of one machine receive the parts of three others; ranks on CPUs read them where they lie.
TEST(GpuMemory, OneMachineGivesBackWhatArrived) {
  const Case c{.machines = 1, .machine_ranks = 4};
  const int64_t expected = kLayers + 2 * 3 * kLayer / 4 + kLayers / 4;
  EXPECT_EQ(measured(c).peak_of(MemoryUse::kGradients), expected);
  EXPECT_EQ(planned(c).peak_of(MemoryUse::kGradients), expected);
  EXPECT_EQ(planned(c, false).peak_of(MemoryUse::kGradients), kLayers + kLayers / 4);
}

void expect_planned(const Case& c) {
  SCOPED_TRACE(c.name());
  const AllocatorStats real = measured(c), plan = planned(c);
  for (MemoryUse use : {MemoryUse::kParameters, MemoryUse::kMoments, MemoryUse::kGradients, MemoryUse::kGathered})
    EXPECT_EQ(plan.peak_of(use), real.peak_of(use)) << to_text(use);
  EXPECT_NEAR(static_cast<double>(device_peak(plan)) / static_cast<double>(device_peak(real)), 1, 0.02);
}

TEST(GpuMemory, APlanCountsWhatIsHeld) {
  for (const char* level : {"none", "optimizer", "gradients", "parameters"}) {
    for (const auto& [machines, ranks] : {std::pair{1, 2}, {2, 2}, {3, 1}})
      for (const int micro_batches : {1, 3}) expect_planned({level, machines, ranks, micro_batches, "", 64});
    for (const char* more : {"reduce: fast", "precision: {reduce: bf16}"}) expect_planned({level, 2, 2, 3, more, 64});
  }
}

// What `check` says of the memory of a rank, such as "8.71 MiB", with this many GPUs.
std::string checked(int gpus, const std::string& device) {
  testing::fake_gpu(0, {.devices = gpus});
  const test::TemporaryFolder folder;
  std::ofstream(folder / "c.yaml") << "run: {dir: " << folder / "run"
                                   << "}\nbatch: {global: 2, micro: 1}\n"
                                   << "model: {name: mlp, hidden: [512]}\ndata: {name: synthetic_images, "
                                   << "validation: 0, synthetic: {images: 64, height: 32, width: 32}}\n";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(check_command(builtin(), {folder / "c.yaml", "device=" + device, "--ranks", "2", "--json"}), 0);
  const std::string out = ::testing::internal::GetCapturedStdout();
  const std::string before = "\"check\":\"memory\"", of = " for each of 2 ranks";
  const size_t line = out.find(before), end = out.find(of, line);
  if (line == out.npos || end == out.npos) return out;
  const size_t begin = out.rfind('"', end) + 1;
  return out.substr(begin, end - begin);
}

// GPUs receive what ranks on CPUs read where it lies, and do not take the copy for checkpoints.
TEST(GpuMemory, ChecksAreOfTheDeviceThatRanksGet) {
  const std::string gpus = checked(2, "cuda"), cpus = checked(2, "cpu");
  EXPECT_NE(gpus, cpus);
  EXPECT_EQ(checked(2, "auto"), gpus);
  EXPECT_EQ(checked(1, "auto"), cpus) << "one GPU is not enough for two ranks";
}

}  // namespace
}  // namespace lockstep::gpu_memory_test
