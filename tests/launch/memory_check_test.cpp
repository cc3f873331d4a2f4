// verify.memory: a bit of the state that changes while nothing writes it is found before the next update reads it,
// whenever in the step that was and whatever the rank did then.
#include "launch/training/memory_check.h"

#include <gtest/gtest.h>

#include <mutex>

#include "launch/training/shared_data.h"
#include "launch/training/trainer.h"
#include "tests/launch/scratch.h"
#include "tests/support/run_ranks.h"

namespace lockstep::memory_check_test {
namespace {

const std::string kYaml =
    "batch: {global: 6, micro: 1}\nmodel: {name: gpt, layers: 2, heads: 2, width: 32}\noptim: {lr: 0.003}\n"
    "data: {name: synthetic_tokens, context: 16, synthetic: {tokens: 2000, vocabulary: 40}}\nverify: {memory: 1}\n";

// What rank 1 says, or nothing: in the step it flips a bit of this slice of its state.
std::string found(const std::string& level, const std::string& when, int64_t step, size_t slice) {
  const App app = builtin();
  const auto settings =
      load_settings(app, ConfigTree::parse(str(kYaml, "sharding: {level: ", level, "}\n"), "test.yaml"), 3);
  SharedData data(*settings);
  std::string out;
  std::mutex mutex;
  testing::run_ranks(3, [&](Communicator& comm) {
    Trainer trainer(*settings, data.open(comm), comm);
    const auto flip = [&] {
      if (comm.rank() != 1 || trainer.steps_done() + 1 != step) return;
      std::vector<StateEntry> state = trainer.state();
      std::erase_if(state, [](const StateEntry& e) { return e.data.numel() == 0; });
      const StateEntry& e = state[slice % state.size()];
      static_cast<uint32_t*>(e.data.write())[static_cast<size_t>(e.data.numel()) / 2] ^= 1u << 17;
    };
    // Before the passes, and when the passes are done and the exchange is waited for.
    if (when == "exchange") trainer.set_before_change(flip);
    const auto [code, text] = error_of([&] {
      while (trainer.steps_done() < 4) {
        if (when == "rest") flip();
        trainer.step();
      }
    });
    std::lock_guard lock(mutex);
    if (code == ExitCode::kRanksDisagree && comm.rank() == 1) out = text;
  });
  return out;
}

TEST(MemoryCheck, FindsABitThatChangedWheneverItDid) {
  for (const char* level : {"none", "optimizer", "gradients", "parameters"})
    for (const char* when : {"rest", "exchange"})
      for (size_t slice : {0, 7, 20, 33}) {
        const std::string text = found(level, when, 3, slice);
        EXPECT_NE(text.find("has changed in its memory after step 2 though nothing wrote it"), std::string::npos)
            << level << ", " << when << ", slice " << slice << ": " << text;
      }
  EXPECT_EQ(found("parameters", "rest", 100, 0), "");
}

}  // namespace
}  // namespace lockstep::memory_check_test
