// Which rank computes where: on a GPU of its own, on one that is shared where that is allowed, on CPUs, or not at all.
#include "launch/world/devices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <thread>

#include "core/device/context.h"
#include "launch/world/near_cpus.h"
#include "tests/launch/scratch.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/files.h"
#include "tests/support/run_ranks.h"

namespace lockstep::devices_test {
namespace {

using testing::fake_gpu;
using testing::run_ranks;

constexpr DeviceOptions kAuto{DeviceChoice::kAuto, false}, kCpu{DeviceChoice::kCpu, false},
    kCuda{DeviceChoice::kCuda, false}, kShared{DeviceChoice::kCuda, true}, kAutoShared{DeviceChoice::kAuto, true};

std::vector<Device> places(int ranks, const DeviceOptions& options) {
  std::vector<Device> out(static_cast<size_t>(ranks));
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Device d = place_ranks(comm, comm.rank(), options);
    std::lock_guard lock(mutex);
    out[static_cast<size_t>(comm.rank())] = d;
  });
  return out;
}

Device cuda(int index) { return {DeviceType::kCuda, index}; }

TEST(Devices, EachRankTakesTheGpuOfItsPlaceOnTheMachine) {
  fake_gpu(0, {.devices = 4});
  for (const DeviceOptions& o : {kAuto, kCuda, kShared}) {
    EXPECT_EQ(places(1, o), (std::vector{cuda(0)}));
    EXPECT_EQ(places(3, o), (std::vector{cuda(0), cuda(1), cuda(2)}));
  }
  EXPECT_EQ(places(2, kCpu), (std::vector<Device>(2)));
  EXPECT_EQ(place_alone(kAuto), cuda(0));
  EXPECT_EQ(place_alone(kCuda), cuda(0));
  EXPECT_EQ(place_alone(kCpu), Device{});
}

TEST(Devices, MoreRanksThanGpusIsAnErrorUnlessTheyMayShare) {
  fake_gpu(0, {.devices = 2});
  EXPECT_EQ(places(3, kShared), (std::vector{cuda(0), cuda(1), cuda(0)}));
  EXPECT_EQ(places(3, kAutoShared), (std::vector{cuda(0), cuda(1), cuda(0)}));
  EXPECT_EQ(places(3, kAuto), (std::vector<Device>(3))) << "the same file everywhere";
  ::setenv("CUDA_VISIBLE_DEVICES", "4,5", 1);
  std::mutex mutex;
  std::vector<std::string> said;
  run_ranks(3, [&](Communicator& comm) {
    const auto [code, text] = error_of([&] { place_ranks(comm, comm.rank(), kCuda); });
    EXPECT_EQ(code, ExitCode::kDevice);
    std::lock_guard lock(mutex);
    if (!text.empty()) said.push_back(text);
  });
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ASSERT_EQ(said.size(), 1u) << "one rank says it";
  EXPECT_TRUE(contains(said[0], "device: cuda, but 3 ranks on ")) << said[0];
  EXPECT_TRUE(contains(said[0],
                       ", but 2 GPUs visible (CUDA_VISIBLE_DEVICES=4,5): start 2 there, or let ranks share a "
                       "GPU, which is slower, with share_gpu=true"))
      << said[0];
}

TEST(Devices, TheMostGpusAreKnownBeforeTheDriverIsLoaded) {
  test::TemporaryFolder proc;
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(most_visible_gpus(proc / ""), std::numeric_limits<int>::max()) << "nothing says so";
  for (const char* card : {"0000:3b:00.0", "0000:86:00.0", "0000:af:00.0"})
    std::filesystem::create_directories(proc / str("driver/nvidia/gpus/", card));
  EXPECT_EQ(most_visible_gpus(proc / ""), 3);
  for (const auto& [list, most] : {std::pair{"0", 1}, {"0,2", 2}, {"GPU-a,GPU-b,GPU-c,GPU-d", 3}, {"", 0}}) {
    ::setenv("CUDA_VISIBLE_DEVICES", list, 1);
    EXPECT_EQ(most_visible_gpus(proc / ""), most) << list;
  }
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

// A thread is bound to what is near its GPU, unless somebody has bound it already.
TEST(Devices, ARankRunsNearItsGpu) {
  test::TemporaryFolder system;
  const std::string of_card = system / "bus/pci/devices/0000:3b:00.0";
  std::filesystem::create_directories(of_card);
  const auto near = [&](const std::string& list) {
    std::ofstream(of_card + "/local_cpulist") << list << "\n";
    return cpus_near("0000:3B:00.0", system / "");
  };
  EXPECT_EQ(near("0-3,8,10-11"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(near("5"), (std::vector<int>{5}));
  for (const char* none : {"", "a", "3-1", "1-", "-1", "1,,2", "0-99999999999"})
    EXPECT_EQ(near(none), std::vector<int>()) << none;
  EXPECT_EQ(cpus_near("0000:86:00.0", system / ""), std::vector<int>());

  const auto cpus = [] {
    cpu_set_t set;
    check(sched_getaffinity(0, sizeof set, &set) == 0, "sched_getaffinity");
    std::vector<int> out;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) out.push_back(cpu);
    return out;
  };
  const std::vector<int> all = cpus();
  std::thread([&] {
    for (const std::vector<int>& none : {std::vector<int>(), {CPU_SETSIZE - 1}}) {
      const WithCpusNear near(none);
      EXPECT_EQ(cpus(), all);
    }
    if (std::ssize(all) < 2 || std::ssize(all) < sysconf(_SC_NPROCESSORS_ONLN))
      return;  // one CPU, or bound from outside
    {
      const WithCpusNear near({all[1]});
      EXPECT_EQ(cpus(), std::vector<int>{all[1]});
      const WithCpusNear other({all[0]});
      EXPECT_EQ(cpus(), std::vector<int>{all[1]}) << "bound already";
    }
    EXPECT_EQ(cpus(), all);
  }).join();
}

TEST(Devices, MasksAreTheLibrarysWhereNoRankDoubtsIt) {
  const MaskedAttention causal{DType::kBFloat16, 64, 1, 0, true}, other{DType::kBFloat16, 64, 1, 0, false};
  const auto trusted = [&](const std::function<std::string()>& doubt) {
    fake_gpu(0, {.devices = 3, .doubt = doubt});
    std::mutex mutex;
    std::vector<MaskedAttentions> of_ranks;
    run_ranks(3, [&](Communicator& comm) {
      Stream stream({DeviceType::kCuda, comm.rank()}, Stream::Mode::kInline);
      WithStream with(stream);
      agree_on_masks(comm, {causal, {DType::kFloat32, 64, 1, 0, true}});
      agree_on_masks(comm, {causal, other});
      std::lock_guard lock(mutex);
      of_ranks.push_back(stream.device_queue()->trusted_masks());
    });
    EXPECT_EQ(of_ranks[0], of_ranks[1]);
    EXPECT_EQ(of_ranks[0], of_ranks[2]);
    return of_ranks[0];
  };
  std::atomic<int> asked = 0;
  EXPECT_EQ(trusted([&] { return ++asked, std::string(); }), (MaskedAttentions{causal, other}));
  EXPECT_EQ(asked, 6) << "once a rank and kind of a 16-bit type";
  asked = 0;
  const auto doubt_first_kind = [&] {  // one rank each time; the other kind comes first in the second call
    const int n = asked++;
    return std::string(n == 1 || n == 7 ? "other bits" : "");
  };
  EXPECT_EQ(trusted(doubt_first_kind), MaskedAttentions{other});
  fake_gpu();
  run_ranks(2, [&](Communicator& comm) { agree_on_masks(comm, {causal}); });  // CPUs: nothing to agree on
}

// Ranks as processes, on machines of their own; here only what they tell each other.
RankPlacement placement(const std::string& host, int gpus, int index, const std::string& id,
                        const std::string& why = "") {
  return {host, host, why, gpus, index, id, "GPU"};
}

TEST(Devices, AProcessMaySeeItsOwnGpuAlone) {
  // As a batch system binds them: index 0 in each process, another card each time.
  const std::vector<RankPlacement> bound{placement("a", 1, 0, "01"), placement("a", 1, 0, "02"),
                                         placement("b", 1, 0, "03")};
  for (const DeviceOptions& o : {kAuto, kCuda}) EXPECT_TRUE(decide_placement(bound, o).on_gpus);
  const std::vector<RankPlacement> badly{placement("b", 1, 0, "03"), placement("a", 1, 0, "01"),
                                         placement("a", 1, 0, "01")};
  const PlacementDecision s = decide_placement(badly, kCuda);
  EXPECT_EQ(s.error, ExitCode::kDevice);
  EXPECT_TRUE(contains(s.text, "2 ranks on a, but 1 GPU visible: start 1 rank there")) << s.text;
  EXPECT_TRUE(decide_placement(badly, kShared).on_gpus);
  EXPECT_FALSE(decide_placement(badly, kAuto).on_gpus);
  EXPECT_EQ(decide_placement(badly, kAuto).error, ExitCode::kOk);
}

TEST(Devices, ContainersMayShareANameOrAGpu) {
  std::vector<RankPlacement> placements{placement("node", 1, 0, "01"), placement("node", 1, 0, "02")};
  EXPECT_TRUE(decide_placement(placements, kCuda).on_gpus) << "one name, one machine's id, two GPUs";
  placements[1].id = placements[0].id;
  placements[1].host = "other container";
  placements[1].machine = "another";
  const PlacementDecision s = decide_placement(placements, kCuda);
  EXPECT_EQ(s.error, ExitCode::kDevice) << "two names, one card";
  EXPECT_TRUE(contains(s.text, "2 ranks on other container (whose 01 is that of node, too), but")) << s.text;
}

TEST(Devices, OneRankWithoutAGpuIsNotPassedOver) {
  const std::vector<RankPlacement> mixed{placement("a", 2, 0, "01"), placement("a", 2, 1, "02"),
                                         placement("b", 0, 0, "", "driver too old")};
  const PlacementDecision chosen = decide_placement(mixed, kAuto), asked = decide_placement(mixed, kCuda);
  EXPECT_EQ(chosen.error, ExitCode::kRanksDisagree);
  EXPECT_EQ(chosen.speaker, 2);
  EXPECT_TRUE(contains(chosen.text, "no GPU can be used here: driver too old; but rank 0 on a has one")) << chosen.text;
  EXPECT_EQ(asked.error, ExitCode::kDevice);
  EXPECT_EQ(asked.speaker, 2);
  EXPECT_EQ(asked.text, "device: cuda, but no GPU can be used: driver too old");
  EXPECT_EQ(decide_placement(mixed, kCpu).error, ExitCode::kOk);

  const std::vector<RankPlacement> none{placement("a", 0, 0, "", "no driver"), placement("b", 0, 0, "", "no driver")};
  const PlacementDecision cpus = decide_placement(none, kAuto);
  EXPECT_FALSE(cpus.on_gpus);
  EXPECT_EQ(cpus.error, ExitCode::kOk);
  EXPECT_EQ(cpus.text, "no GPU: no driver");
}

TEST(Devices, AGpuMultipliesInTf32WhereTheOptionsSaySo) {
  fake_gpu(0, {.devices = 1});
  for (const bool on : {true, false}) {
    const Stream stream(cuda(0), Stream::Mode::kQueue);
    EXPECT_FALSE(stream.device_queue()->allows_tf32());
    apply({.tf32 = on}, stream);
    EXPECT_EQ(stream.device_queue()->allows_tf32(), on);
  }
  apply({.tf32 = true}, Stream({}, Stream::Mode::kInline, 1));
}

TEST(Devices, TheListNamesEachGpu) {
  fake_gpu(0, {.devices = 2, .memory_bytes = int64_t(3) << 30});
  const std::string text = devices_text(), json = devices_json();
  EXPECT_TRUE(text.starts_with("cpu ")) << text;
  EXPECT_TRUE(contains(text, ":0  Fake GPU, ") && contains(text, ":1  Fake GPU, ")) << text;
  EXPECT_TRUE(contains(text, "3.00 GiB, PCI 0000:01:00.0, 3.00 GiB free\nno driver, fake 1\n")) << text;
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 3);
  EXPECT_TRUE(contains(json, "\"bus\":\"0000:01:00.0\",\"id\":\"GPU-1\"") &&
              contains(json, "\"memory_bytes\":3221225472"))
      << json;
}

}  // namespace
}  // namespace lockstep::devices_test
