// What a user is told where a GPU has too little memory: by what took most of it, keys that are not yet set so.
#include "launch/training/guards/memory_advice.h"

#include <gtest/gtest.h>

#include "launch/training/step/shared_data.h"
#include "launch/training/step/trainer.h"
#include "launch/world/world.h"
#include "tests/launch/scratch.h"
#include "tests/support/fake_gpu.h"

namespace lockstep::memory_advice_test {
namespace {

std::unique_ptr<Settings> settings_with(const std::string& more, int ranks = 1,
                                        const std::vector<std::string>& overrides = {}) {
  return load_settings(
      builtin(),
      ConfigTree::parse(str("batch:\n  global: 16\n  micro: 4\nmodel:\n  name: gpt\n  layers: 2\n"
                            "  heads: 2\n  width: 64\ndata:\n  name: synthetic_tokens\n  context: 16\n",
                            more),
                        "test.yaml", overrides),
      ranks);
}

BytesByUse mostly(MemoryUse use) {
  BytesByUse held{};
  held.fill(1 << 20);
  held[static_cast<size_t>(use)] = int64_t(3) << 30;
  return held;
}

TEST(MemoryAdvice, NamesWhatWouldHelpAndWhatIsSetNow) {
  const auto plain = settings_with("");
  EXPECT_EQ(memory_advice(mostly(MemoryUse::kActivations), *plain, 2),
            "activations take most of it (3.00 GiB): try recompute=block (it is none), batch.micro below 4 or "
            "precision.compute=bf16 (it is fp32); `lockstep plan` says what fits");
  EXPECT_EQ(memory_advice(mostly(MemoryUse::kMoments), *plain, 2),
            "moments take most of it (3.00 GiB): try sharding.level=optimizer (it is none) or "
            "sharding.offload=optimizer (it is none); `lockstep plan` says what fits");
  EXPECT_EQ(memory_advice(mostly(MemoryUse::kGradients), *plain, 1),
            "gradients take most of it (3.00 GiB): try more ranks with sharding.level=gradients (it is none); "
            "`lockstep plan` says what fits");
}

TEST(MemoryAdvice, LeavesOutWhatIsSetAlready) {
  const auto set = settings_with(
      "recompute: block\nprecision:\n  compute: bf16\nsharding:\n  level: parameters\n  offload: optimizer\n"
      "  reshard_after_forward: false\n  gathered_limit: 100\n",
      2);
  const auto advice = [&](MemoryUse use) { return memory_advice(mostly(use), *set, 2); };
  EXPECT_TRUE(contains(advice(MemoryUse::kActivations), "try batch.micro below 4;")) << advice(MemoryUse::kActivations);
  for (MemoryUse use : {MemoryUse::kParameters, MemoryUse::kGradients, MemoryUse::kMoments})
    EXPECT_TRUE(contains(advice(use), "try more ranks;")) << advice(use);
  EXPECT_TRUE(
      contains(advice(MemoryUse::kGathered),
               "try sharding.reshard_after_forward=true (it is false) or sharding.gathered_limit (it is 100 MB"))
      << advice(MemoryUse::kGathered);
}

// A run that needs more than its GPU has: exit code and what is said.
std::pair<int, std::string> run_with(int64_t memory, const std::vector<std::string>& overrides) {
  testing::fake_gpu(0, {.devices = 1, .memory_bytes = memory});
  const App app = builtin();
  const auto settings = settings_with("", 1, overrides);
  SharedData data(*settings);
  std::string said;
  WorldOptions world;
  world.device.choice = DeviceChoice::kCuda;
  world.on_failure = [&](const Error& e, int) { said = e.what(); };
  const int code = run_world(world, [&](Communicator& comm) {
    with_memory_advice(*settings, comm.size(), [&] {
      Trainer trainer(*settings, data.open(comm), comm);
      trainer.step();
    });
  });
  return {code, said};
}

TEST(MemoryAdvice, EndsWhatARunSaysThatHasTooLittleMemory) {
  const auto [before, setting_up] = run_with(int64_t(70) << 20, {"model.width=512", "model.layers=10"});
  EXPECT_EQ(before, static_cast<int>(ExitCode::kDevice));
  EXPECT_TRUE(contains(setting_up, "out of memory on cuda:0: ")) << setting_up;
  EXPECT_TRUE(contains(setting_up, "; parameters take most of it (")) << setting_up;

  const auto [within, in_step] = run_with(int64_t(140) << 20, {"batch.global=1024", "batch.micro=1024"});
  EXPECT_EQ(within, static_cast<int>(ExitCode::kDevice));
  EXPECT_TRUE(contains(in_step, "out of memory on cuda:0: ")) << in_step;
  EXPECT_TRUE(contains(in_step, " bytes asked for (activations of ")) << in_step;
  EXPECT_TRUE(contains(in_step, "; activations take most of it (")) << in_step;
  EXPECT_TRUE(contains(in_step, "try recompute=block (it is none), batch.micro below 1024 or ")) << in_step;
}

}  // namespace
}  // namespace lockstep::memory_advice_test
