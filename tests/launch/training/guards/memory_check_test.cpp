// verify.memory: a bit of the state that changes while nothing writes it is found before the next update reads it,
// whenever in the step that was and whatever the rank did then.
#include "launch/training/guards/memory_check.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <iostream>
#include <mutex>
#include <random>
#include <thread>
#include <tuple>

#include "launch/training/guards/sentinel.h"
#include "launch/training/step/shared_data.h"
#include "launch/training/step/trainer.h"
#include "tests/launch/scratch.h"
#include "tests/support/run_ranks.h"
#include "tests/support/thorough.h"

namespace lockstep::memory_check_test {
namespace {

std::string yaml(const std::string& sharding, const std::string& optim = "lr: 0.003",
                 const std::string& verify = "memory: 1") {
  return str("batch: {global: 6, micro: 1}\nmodel: {name: gpt, layers: 2, heads: 2, width: 32}\n",
             "data: {name: synthetic_tokens, context: 16, synthetic: {tokens: 2000, vocabulary: 40}}\n", "sharding: {",
             sharding, "}\noptim: {", optim, "}\nverify: {", verify, "}\n");
}

// Of this rank's state, without what it has no elements of.
std::vector<StateEntry> slices_of(std::vector<StateEntry> state) {
  std::erase_if(state, [](const StateEntry& e) { return e.data.numel() == 0; });
  return state;
}

// Not as a write of the tensor, which would be counted.
void flip_bit(const Tensor& t, uint64_t element, uint64_t bit) {
  const auto bits = static_cast<uint64_t>(8 * size_of(t.dtype()));
  const uint64_t at = (element % static_cast<uint64_t>(t.numel())) * bits + bit % bits;
  std::atomic_ref(static_cast<uint8_t*>(const_cast<void*>(t.read()))[at / 8])
      .fetch_xor(static_cast<uint8_t>(1u << at % 8));
}

// What rank 1 says, or nothing: in the step it flips a bit of this slice of its state.
std::string found(const std::string& yaml, const std::string& when, int64_t step, size_t slice) {
  const App app = builtin();
  const auto settings = load_settings(app, ConfigTree::parse(yaml, "test.yaml"), 3);
  SharedData data(*settings);
  std::string out;
  std::mutex mutex;
  testing::run_ranks(3, [&](Communicator& comm) {
    Trainer trainer(*settings, data.open(comm), comm);
    const auto flip = [&](const std::string& moment) {
      if (moment != when || comm.rank() != 1 || trainer.steps_done() + 1 != step) return;
      const std::vector<StateEntry> state = slices_of(trainer.state());
      const StateEntry& e = state[slice % state.size()];
      flip_bit(e.data, static_cast<uint64_t>(e.data.numel()) / 2, 17);
    };
    trainer.set_before_change([&] { flip("exchange"); });
    trainer.set_before_update([&] { flip("compared"); });
    const auto [code, text] = error_of([&] {
      while (trainer.steps_done() < 4) {
        flip("rest");
        trainer.start();
        flip("updated");
        trainer.finish();
      }
    });
    std::lock_guard lock(mutex);
    if (code == ExitCode::kRanksDisagree && comm.rank() == 1) out = text;
  });
  return out;
}

TEST(MemoryCheck, FindsABitThatChangedWheneverItDid) {
  // When the passes begin; when they are done and the exchange is waited for; when all ranks have compared their state
  // and the update begins; when the update of step 2 has been done, before the step is finished.
  for (const char* level : {"none", "optimizer", "gradients", "parameters"})
    for (size_t slice : {0, 7, 20, 33}) {
      const std::string why = " though nothing wrote it, in elements [";
      for (const auto& [when, step, says] :
           std::vector<std::tuple<const char*, int64_t, const char*>>{{"rest", 3, "after step 2"},
                                                                      {"exchange", 3, "after step 2"},
                                                                      {"compared", 3, "before the update of step 3"},
                                                                      {"updated", 2, "after step 2"}}) {
        const std::string text = found(yaml(str("level: ", level)), when, step, slice);
        EXPECT_TRUE(contains(text, str("has changed in its memory ", says, why)))
            << level << ", " << when << ", slice " << slice << ": " << text;
      }
    }
  EXPECT_EQ(found(yaml("level: parameters"), "rest", 100, 0), "");
}

// Updates of whole parameters, of codes, of averages, in host memory.
TEST(MemoryCheck, OfEachKindOfUpdate) {
  for (const char* optimizer : {"sgd", "lion", "adamw8bit", "lamb", "muon", "adamw, ema: 0.9"})
    for (const char* level : {"none", "parameters"})
      for (const char* when : {"compared", "updated"})
        for (size_t slice : {0, 11, 30}) {
          const std::string text = yaml(str("level: ", level), str("name: ", optimizer));
          EXPECT_TRUE(contains(found(text, when, 2, slice), "has changed in its memory "))
              << text << when << ", slice " << slice;
          EXPECT_EQ(found(text, when, 100, slice), "");
        }
  EXPECT_TRUE(contains(found(yaml("level: none, offload: optimizer"), "compared", 2, 5), "has changed"));
}

// Every second update only: what an update writes that is not hashed may differ.
TEST(MemoryCheck, EverySecondStep) {
  const std::string text = yaml("level: none", "name: adamw, ema: 0.9", "memory: 2");
  EXPECT_EQ(found(text, "compared", 100, 0), "");
  EXPECT_TRUE(contains(found(text, "compared", 3, 4), "has changed"));
  EXPECT_EQ(found(text, "compared", 2, 4), "") << "between an update that is not hashed and the next one";
}

// What a run with a flip ends with.
struct Outcome {
  Hash128 digest;    // of the state after the steps
  std::string text;  // or why it ended before
};

enum class Target { kState, kGradient, kCopy };

// A flip at a random moment of steps 2 to 4: in the state beside the rank's own work, in all else when the rank is
// about to read it.
struct Flip {
  Target target = Target::kState;
  int rank = -1;  // none
  uint64_t place = 0, element = 0, bit = 0;
  double moment = 0;  // in [0, 1)
};

// Rank 0 takes 2 ms longer in each step, so that the others wait. `seconds`: of steps 2 to 4.
Outcome train_with(const Flip& flip, Settings& settings, double& seconds) {
  using Clock = std::chrono::steady_clock;
  SharedData data(settings);
  Outcome out;
  std::mutex mutex;
  testing::run_ranks(3, [&](Communicator& comm) {
    Trainer trainer(settings, data.open(comm), comm);
    const bool mine = comm.rank() == flip.rank;
    const int64_t step = 2 + static_cast<int64_t>(3 * flip.moment);
    const bool early = std::fmod(3 * flip.moment, 1) < 0.5;
    const auto at = [&](bool first) {
      if (!mine || flip.target == Target::kState || first != early || trainer.steps_done() + 1 != step) return;
      std::vector<Tensor> all;
      if (flip.target == Target::kGradient)
        for (const Slot& s : trainer.placed().parallel().slots()) all.push_back(s.gradient);
      else
        for (const StateEntry& e : trainer.placed().parallel().whole_copies()) all.push_back(e.data);
      std::erase_if(all, [](const Tensor& t) { return t.numel() == 0; });
      flip_bit(all.at(flip.place % all.size()), flip.element, flip.bit);
    };
    trainer.set_before_change([&] {
      if (comm.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (flip.target == Target::kCopy) at(false);
      else at(true);
    });
    trainer.set_before_update([&] {
      if (flip.target == Target::kGradient) at(false);
    });
    std::thread flipper;
    std::atomic<bool> over{false};
    const auto [code, text] = error_of([&] {
      trainer.step();
      const auto begun = Clock::now();
      if (mine && flip.target == Target::kState)
        flipper = std::thread([&, state = slices_of(trainer.state()), wait = flip.moment * seconds] {
          while (Clock::now() - begun < std::chrono::duration<double>(wait) && !over) {
          }
          flip_bit(state[flip.place % state.size()].data, flip.element, flip.bit);
        });
      while (trainer.steps_done() < 6) {
        if (flip.target == Target::kCopy) at(true);
        trainer.step();
        if (flip.rank < 0 && comm.rank() == 0 && trainer.steps_done() == 4)
          seconds = std::chrono::duration<double>(Clock::now() - begun).count();
      }
    });
    over = true;
    if (flipper.joinable()) flipper.join();
    std::lock_guard lock(mutex);
    if (code == ExitCode::kRanksDisagree && out.text.empty()) out.text = text;
    if (code != ExitCode::kOk) return;
    for (const Hash128& h : digests_of(trainer.entries_to_save())) out.digest += h;
  });
  return out;
}

// 300 flips of the state at random moments, beside the work of ranks that compute and of ranks that wait: each is found
// before an update uses it, or was written over and shows nothing. Of gradients and compute copies, which verify.memory
// does not cover, the share that verify.recompute finds is printed.
TEST(MemoryCheck, FlipsAtRandomMoments) {
  if (!testing::thorough()) GTEST_SKIP() << "300 runs: LOCKSTEP_TEST_THOROUGH=1";
  const App app = builtin();
  std::mt19937_64 random(20261128);
  for (const Target target : {Target::kState, Target::kGradient, Target::kCopy})
    for (const char* level : {"none", "optimizer", "parameters"}) {
      if (target == Target::kCopy && level == std::string("parameters")) continue;  // it keeps none
      const auto settings =
          load_settings(app,
                        ConfigTree::parse(str(yaml(str("level: ", level), "lr: 0.003",
                                                   target == Target::kState ? "memory: 1" : "memory: 1, recompute: 1"),
                                              "precision: {compute: bf16}\n"),
                                          "test.yaml"),
                        3);
      double seconds = 0;
      const Hash128 clean = train_with({}, *settings, seconds).digest;
      int found = 0, harmless = 0, missed = 0;
      for (int i = 0; i < 100; ++i) {
        const Flip flip{.target = target,
                        .rank = static_cast<int>(random() % 3),
                        .place = random(),
                        .element = random(),
                        .bit = random(),
                        .moment = static_cast<double>(random() >> 11) * 0x1p-53};
        const Outcome o = train_with(flip, *settings, seconds);
        ++(!o.text.empty() ? found : o.digest == clean ? harmless : missed);
        if (o.text.empty() && !(o.digest == clean) && target == Target::kState)
          ADD_FAILURE() << level << ": rank " << flip.rank << ", slice " << flip.place << ", moment " << flip.moment;
      }
      std::cout << (target == Target::kState      ? "state"
                    : target == Target::kGradient ? "gradient"
                                                  : "compute copy")
                << ", level " << level << ": " << found << " found, " << harmless << " harmless, " << missed
                << " missed\n";
    }
}

}  // namespace
}  // namespace lockstep::memory_check_test
