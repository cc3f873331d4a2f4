// Gradients that are computed once more by another rank: nothing of a run changes, and a rank that computes wrongly is
// named.
#include "launch/training/guards/recheck.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "core/state/checkpoint.h"
#include "launch/training/step/shared_data.h"
#include "launch/training/step/trainer.h"
#include "tests/launch/scratch.h"
#include "tests/support/planted_machines.h"
#include "tests/support/run_ranks.h"
#include "tests/support/thorough.h"

namespace lockstep::recheck_test {
namespace {

const std::string kText =
    "train: {steps: 20}\nbatch: {global: 22, micro: 2}\nmodel: {name: gpt, layers: 2, heads: 2, width: 32, dropout: "
    "0.1}\n"
    "optim: {lr: 0.003, clip_norm: 0.5}\n"
    "data: {name: synthetic_tokens, context: 16, synthetic: {tokens: 2000, vocabulary: 40}}\n";
// Running statistics must not be folded twice.
const std::string kImages =
    "train: {steps: 20}\nbatch: {global: 12, micro: 2}\nmodel: {name: resnet, depth: 18, stem: small, width: 4}\n"
    "data: {name: synthetic_images, synthetic: {images: 60, height: 8, width: 8}}\n";

struct Outcome {
  std::string digest;
  ExitCode code = ExitCode::kOk;  // of the rank that says why
  int speaker = -1;
  std::string text;
  int64_t good = -1, steps = 0;
};

// `odd`: a rank whose gradients are wrong from step `from` on.
Outcome train(const std::string& yaml, int ranks, int odd = -1, int64_t from = 0, int64_t steps = 6,
              const std::string& kind = "gradients") {
  const App app = builtin();
  const auto settings = load_settings(app, ConfigTree::parse(yaml, "test.yaml"), ranks);
  SharedData data(*settings);
  ChaosOptions faults;
  faults.faults.push_back({.kind = kind, .step = from, .rank = odd});
  Outcome out;
  std::mutex mutex;
  Hash128 digest;
  testing::run_ranks(ranks, [&](Communicator& comm) {
    const Chaos chaos(faults, comm.rank(), 1);
    Trainer trainer(*settings, data.open(comm), comm);
    if (!chaos.empty()) trainer.set_chaos(&chaos);
    bool secondary = false;
    const auto train = [&] {
      try {
        for (int64_t i = 0; i < steps; ++i) trainer.step();
      } catch (const Error& e) {
        secondary = e.is_secondary();
        throw;
      }
    };
    const auto [code, text] = error_of(train);
    std::lock_guard lock(mutex);
    out.steps = trainer.steps_done();
    if (comm.rank() == 0) out.good = trainer.last_equal_step();
    if (code == ExitCode::kOk) {
      for (const Hash128& h : digests_of(trainer.entries_to_save())) digest += h;
    } else if (!secondary) {
      EXPECT_EQ(out.speaker, -1) << text;
      out.code = code, out.text = text, out.speaker = comm.rank();
    }
  });
  out.digest = to_hex(digest);
  return out;
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_TRUE(contains(text, part)) << part << " in: " << text;
}

std::string with(const std::string& yaml, int64_t every, const std::string& more = "") {
  return str(yaml, "verify: {recompute: ", every, "}\n", more);
}

TEST(Recheck, ChangesNothingOfARun) {
  for (const std::string& yaml : {kText, kImages}) {
    const std::string plain = train(yaml, 1).digest;
    for (int ranks : {2, 3, 4})
      for (const char* level : {"none", "optimizer", "gradients", "parameters"}) {
        const Outcome o = train(with(yaml, 2, str("sharding: {level: ", level, "}\n")), ranks);
        EXPECT_EQ(o.text, "") << ranks << " ranks, level " << level;
        EXPECT_EQ(o.digest, plain) << ranks << " ranks, level " << level;
        EXPECT_EQ(o.good, 6);
      }
  }
  for (const char* more : {"precision: {compute: bf16, reduce: bf16}\n", "precision: {compute: fp16}\n",
                           "recompute: block\n", "reduce: fast\n", "sharding: {offload: optimizer}\n"}) {
    const Outcome checked = train(with(kText, 1, more), 3), plain = train(kText + more, 3);
    EXPECT_EQ(checked.text, "") << more;
    EXPECT_EQ(checked.digest, plain.digest) << more;
  }
}

// The last step of the epoch, the sixth, has seven micro-batches for eleven ranks.
TEST(Recheck, OfRanksWithoutMicroBatches) {
  const std::string plain = train(kText, 1, -1, 0, 7).digest;
  for (const char* level : {"none", "parameters"}) {
    const Outcome o = train(with(kText, 1, str("sharding: {level: ", level, "}\n")), 11, -1, 0, 7);
    EXPECT_EQ(o.text, "");
    EXPECT_EQ(o.digest, plain);
  }
}

TEST(Recheck, NamesTheRankThatComputesWrongly) {
  int trials = 0;
  for (int ranks : {3, 4, 6})
    for (const char* level : {"none", "optimizer", "gradients", "parameters"})
      for (int odd = 0; odd < ranks; ++odd)
        for (int64_t every : {1, 3}) {
          if (!testing::thorough() && (odd + every) % 3 != 0) continue;
          const int64_t from = 1 + (odd + every) % 3;
          const Outcome o = train(with(kText, every, str("sharding: {level: ", level, "}\n")), ranks, odd, from);
          const int64_t found = (from + every - 1) / every * every;  // the first check from then on
          const std::string what =
              str(ranks, " ranks, level ", level, ", rank ", odd, " from step ", from, ", every ", every, ": ", o.text);
          EXPECT_EQ(o.code, ExitCode::kRanksDisagree) << what;
          EXPECT_EQ(o.speaker, odd) << what;
          expect_parts(o.text, {str("step ", found, ": micro-batch "), str("rank ", odd, " on "),
                                "computes other gradients than the other ranks, in wte.weight, first in element ",
                                " in place of ", str("the last step that was found good is ", found - every)});
          EXPECT_EQ(o.good, found - every) << what;
          EXPECT_EQ(o.steps, found - 1) << what;
          ++trials;
        }
  std::printf("[ trials   ] %d\n", trials);
}

// In each micro-batch, or sum, from a step on: found by the first check from then on, wherever the fault lies.
TEST(Recheck, NamesTheRankWhoseActivationsProductsOrSumsAreWrong) {
  int trials = 0;
  const auto expect_found = [&](const std::string& yaml, const std::string& kind, int ranks, const char* level, int odd,
                                int64_t every, int64_t from) {
    const Outcome o = train(with(yaml, every, str("sharding: {level: ", level, "}\n")), ranks, odd, from, 6, kind);
    const int64_t found = (from + every - 1) / every * every;
    const std::string what = str(kind, ", ", ranks, " ranks, level ", level, ", rank ", odd, " from step ", from,
                                 ", every ", every, ": ", o.text);
    EXPECT_EQ(o.code, ExitCode::kRanksDisagree) << what;
    EXPECT_EQ(o.speaker, odd) << what;
    expect_parts(o.text, {str("step ", found, ": ", kind == "sums" ? "the part of rank " : "micro-batch "),
                          str("rank ", odd, " on "), kind == "sums" ? "computes other sums of gradients" : "gradients",
                          "first in element ", " in place of "});
    EXPECT_EQ(o.good, found - every) << what;
    EXPECT_EQ(o.steps, found - 1) << what;
    ++trials;
  };
  int one = 0;  // of the ranks, in turn: the one that the slice takes
  for (const char* kind : {"activations", "products", "sums"})
    for (int ranks : {3, 4, 6})
      for (const char* level : {"none", "optimizer", "gradients", "parameters"}) {
        ++one;
        for (int odd = 0; odd < ranks; ++odd) {
          if (!testing::thorough() && odd != one % ranks) continue;
          expect_found(kText, kind, ranks, level, odd, 1 + odd % 3, 1 + (odd + ranks) % 3);
        }
      }
  for (const char* kind : {"activations", "sums"})
    for (int odd = 0; odd < 3; ++odd) expect_found(kImages, kind, 3, "optimizer", odd, 2, 1 + odd);
  std::printf("[ trials   ] %d\n", trials);
}

// The fault comes once, in the micro-batch that is looked at.
TEST(Recheck, NamesAFaultThatGoesAway) {
  const Outcome o =
      train(with("train: {steps: 20}\nbatch: {global: 4, micro: 1}\n" + kText.substr(kText.find("model")), 2), 4, 2, 4,
            6, "gradient");
  EXPECT_EQ(o.speaker, 2) << o.text;
  expect_parts(o.text, {"step 4: micro-batch 2: rank 2 on ",
                        "in wte.weight in a block of up to 16384 elements from 0 on", "computed again it was right"});
}

// A weight that changed in memory gives other gradients, too: where state and gradients are compared in one step, the
// state is what is named, and no processor is blamed.
TEST(Recheck, AWeightThatChangedIsNoFaultOfTheProcessor) {
  const auto expect_state = [](const std::string& verify, int ranks, const char* level, const char* kind) {
    // "weight" after the update of step 3, "memory" before step 4, in which both are due.
    const Outcome o = train(str(kText, "verify: {recompute: 2, ", verify, "}\nsharding: {level: ", level, "}\n"), ranks,
                            1, std::string_view(kind) == "weight" ? 3 : 4, 6, kind);
    EXPECT_EQ(o.code, ExitCode::kRanksDisagree) << kind << ": " << o.text;
    EXPECT_FALSE(contains(o.text, "gradients")) << kind << ": " << o.text;
    EXPECT_TRUE(contains(o.text, "rank 1")) << kind << ": " << o.text;
    EXPECT_EQ(o.steps, 3) << kind << ": " << o.text;
  };
  for (int ranks : {3, 4}) {
    expect_state("every: 2", ranks, "none", "weight");
    expect_state("every: 2", ranks, "none", "memory");
    expect_state("memory: 1", ranks, "none", "memory");
    expect_state("memory: 1", ranks, "parameters", "memory");
  }
}

TEST(Recheck, OfTwoRanksNobodyKnowsWhoIsRight) {
  const Outcome o = train(with(kText, 2), 2, 1, 3);
  EXPECT_EQ(o.code, ExitCode::kRanksDisagree);
  expect_parts(o.text, {"step 4: micro-batch ", "no majority says which are right"});
}

// Every rank is checked in each step, by one of another machine.
TEST(Recheck, LooksAtOtherMachines) {
  const testing::PlantedMachines planted(2);
  std::mutex mutex;
  std::map<int64_t, std::set<std::pair<int64_t, int>>> seen;  // by step: micro-batch and its checker
  testing::run_ranks(6, [&](Communicator& comm) {
    const Recheck recheck(Axis(comm), MicroSchedule::kLocal, 1);
    for (int64_t step = 1; step <= 6; ++step) {
      const Recheck::Turn turn = recheck.turn(step, 6);  // one micro-batch a rank
      EXPECT_EQ(turn.watched, comm.rank());
      EXPECT_NE(turn.checked / 2, comm.rank() / 2) << "step " << step;
      std::lock_guard lock(mutex);
      seen[step].emplace(turn.checked, comm.rank());
    }
  });
  for (const auto& [step, pairs] : seen) {
    std::set<int64_t> checked;
    for (const auto& [micro, rank] : pairs) checked.insert(micro);
    EXPECT_EQ(checked.size(), 6) << "each is looked at in step " << step;
  }
}

}  // namespace
}  // namespace lockstep::recheck_test
