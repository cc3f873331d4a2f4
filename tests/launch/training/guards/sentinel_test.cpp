// The sentinel in a running training: clean runs pass, one flipped bit ends the run and is named.
#include "launch/training/guards/sentinel.h"

#include <gtest/gtest.h>

#include <bit>
#include <mutex>

#include "core/models/mlp.h"
#include "core/ops/ops.h"
#include "launch/training/step/shared_data.h"
#include "launch/training/step/trainer.h"
#include "tests/launch/scratch.h"
#include "tests/support/run_ranks.h"

namespace lockstep::sentinel_test {
namespace {

std::unique_ptr<Settings> settings_for(int ranks, const std::string& more) {
  const std::string yaml = str(
      "train:\n  steps: 20\nbatch:\n  global: 16\n  micro: 2\nmodel:\n  name: mlp\n  hidden: [70]\noptim:\n  lr: 0.01\n"
      "data:\n  name: synthetic_images\n  validation: 0\n  synthetic:\n    images: 64\n    height: 6\n    width: 6\n",
      more);
  return load_settings(builtin(), ConfigTree::parse(yaml, "test.yaml"), ranks);
}

// Flips a bit of the exponent of element 65 of the first tensor of that kind: a low bit of a moment is soon rounded
// away.
std::string flip(const std::vector<StateEntry>& state, const std::string& kind) {
  for (const StateEntry& e : state) {
    if (!e.name.starts_with(kind) || e.data.numel() < 66) continue;
    float& v = e.data.mutable_values<float>()[65];
    v = std::bit_cast<float>(std::bit_cast<uint32_t>(v) ^ (1u << 24));
    return e.name;
  }
  ADD_FAILURE() << "no tensor of kind " << kind;
  return "";
}

// What each rank's run ended with, where rank `odd` has a bit flipped before step 6.
struct End {
  ExitCode code = ExitCode::kOk;
  std::string text;
  int64_t equal = -1;  // the last step found equal
};
std::vector<End> train(int ranks, int every, int odd, const std::string& kind, std::string* tensor = nullptr,
                       const std::string& more = "") {
  const auto settings = settings_for(ranks, str("verify:\n  every: ", every, "\n", more));
  const App app = builtin();
  SharedData data(*settings);
  std::vector<End> ends(static_cast<size_t>(ranks));
  testing::run_ranks(ranks, [&](Communicator& comm) {
    Trainer trainer(*settings, data.open(comm), comm);
    const auto [code, text] = error_of([&] {
      for (int i = 0; i < 12; ++i) {
        if (i == 5 && comm.rank() == odd) {
          const std::string name = flip(trainer.state(), kind);
          if (tensor) *tensor = name;
        }
        trainer.step();
      }
    });
    ends[static_cast<size_t>(comm.rank())] = {code, text, trainer.last_equal_step()};
    comm.barrier("end");
  });
  return ends;
}

TEST(Sentinel, CleanRunsPass) {
  for (int ranks : {1, 2, 3, 4})
    for (const End& e : train(ranks, 1, -1, "")) {
      EXPECT_EQ(e.code, ExitCode::kOk) << ranks << " ranks: " << e.text;
      EXPECT_EQ(e.equal, ranks > 1 ? 12 : -1);
    }
}

TEST(Sentinel, OneFlippedBitNamesRankTensorAndSteps) {
  for (const char* kind : {"parameters/", "adamw.m/", "adamw.v/"}) {
    std::string tensor;
    const auto ends = train(3, 2, 2, kind, &tensor);
    EXPECT_EQ(ends[0].text, "");
    EXPECT_EQ(ends[1].text, "");
    for (const End& e : ends) {
      EXPECT_EQ(e.code, ExitCode::kRanksDisagree) << kind;
      EXPECT_EQ(e.equal, 4) << kind;
    }
    const std::string& text = ends[2].text;
    EXPECT_TRUE(text.starts_with("step 6: rank 2 holds other values than the other 2 ranks in ")) << text;
    EXPECT_TRUE(contains(text, tensor)) << text;
    EXPECT_TRUE(contains(text, "last found equal after step 4")) << text;
    EXPECT_TRUE(contains(text, "checkpoint of step 4 or before")) << text;
  }
}

TEST(Sentinel, MostRanksAreRightWhicheverIsOdd) {
  for (int odd : {0, 1, 3}) {
    const auto ends = train(4, 12, odd, "parameters/");
    const std::string& text = ends[static_cast<size_t>(odd)].text;
    EXPECT_TRUE(text.starts_with(str("step 12: rank ", odd, " holds other values than the other 3 ranks"))) << text;
    EXPECT_TRUE(contains(text, "first comparison of this run")) << text;
  }
}

TEST(Sentinel, TwoRanksCannotTellWhoIsRight) {
  std::string tensor;
  const auto ends = train(2, 3, 1, "parameters/", &tensor);
  EXPECT_EQ(ends[1].text, "");
  EXPECT_TRUE(contains(ends[0].text, "step 6: ranks 0 and 1 hold different values in ")) << ends[0].text;
  EXPECT_TRUE(contains(ends[0].text, tensor)) << ends[0].text;
  EXPECT_TRUE(contains(ends[0].text, "no majority")) << ends[0].text;
}

// Groups of two ranks share one copy of the state in slices; three groups hold copies.
TEST(Sentinel, HybridShardsCompareTheirCopies) {
  for (const char* level : {"optimizer", "gradients", "parameters"}) {
    const std::string sharding = str("sharding:\n  level: ", level, "\n  group: 2\n");
    for (const End& e : train(6, 1, -1, "", nullptr, sharding)) EXPECT_EQ(e.code, ExitCode::kOk) << e.text;
    for (const char* kind : {"parameters/", "adamw.m/"}) {
      std::string tensor;
      const auto ends = train(6, 2, 4, kind, &tensor, sharding);
      for (const End& e : ends) EXPECT_EQ(e.code, ExitCode::kRanksDisagree) << level << kind << e.text;
      for (int r : {0, 1, 2, 3, 5}) EXPECT_EQ(ends[static_cast<size_t>(r)].text, "") << r;
      const std::string& text = ends[4].text;
      EXPECT_TRUE(text.starts_with("step 6: rank 4 holds other values than the other 2 ranks in ")) << text;
      EXPECT_TRUE(contains(text, tensor)) << text;
    }
  }
}

// A model that changes a value of its own parameters in the forward pass of one step, on the rank whose thread says so.
thread_local bool flips = false;
struct FlipOptions {
  int64_t step = 6;
};
std::vector<Field> fields(FlipOptions& o) { return {field("step", o.step, "in this step, from 1")}; }
class Flipping : public Model {
 public:
  Flipping(const FlipOptions& o, const TaskSpec& task)
      : step_(o.step),
        mlp_(child<Mlp>("mlp", MlpOptions{{70}}, task)),
        scale_(parameter("scale", {36}, Init::constant(1))) {}
  Tensor forward(const Tensor& x) override {
    if (std::exchange(flips, flips && context().random.step + 1 != step_) && context().random.step + 1 == step_) {
      const int64_t bytes = size_of(scale_.dtype());
      static_cast<uint8_t*>(scale_.write())[8 * bytes - 1] ^= 1;  // element 7, the exponent
    }
    return mlp_(reshape(x, {x.dim(0), 36}) * scale_);
  }

 private:
  int64_t step_;
  Mlp& mlp_;
  Tensor& scale_;
};

// The gradient of a flipped copy spreads to all ranks alike, and the next gather brings good values: only what the step
// computed with tells.
TEST(Sentinel, WholeCopiesAreComparedAsTheStepUsedThem) {
  App app = builtin();
  app.models.push_back(model_choice<Flipping, FlipOptions>("flipping"));
  for (const char* level : {"optimizer", "gradients", "none"})
    for (const char* precision : {"fp32", "bf16"}) {
      if (std::string(level) == "none" && std::string(precision) == "fp32") continue;  // the state itself
      for (int odd : {-1, 1, 2}) {
        const auto settings = load_settings(
            app,
            ConfigTree::parse(str("train:\n  steps: 20\nbatch:\n  global: 16\n  micro: 2\nmodel:\n  name: flipping\n"
                                  "data:\n  name: synthetic_images\n  validation: 0\n  synthetic:\n    images: 64\n"
                                  "    height: 6\n    width: 6\nverify:\n  every: 2\nsharding:\n  level: ",
                                  level, "\nprecision:\n  compute: ", precision, "\n"),
                              "test.yaml"),
            3);
        SharedData data(*settings);
        std::vector<End> ends(3);
        testing::run_ranks(3, [&](Communicator& comm) {
          Trainer trainer(*settings, data.open(comm), comm);
          EXPECT_TRUE(trainer.has_replicas());
          flips = comm.rank() == odd;
          const auto [code, text] = error_of([&] {
            for (int i = 0; i < 8; ++i) trainer.step();
          });
          flips = false;
          ends[static_cast<size_t>(comm.rank())] = {code, text};
          comm.barrier("end");
        });
        for (const End& e : ends) EXPECT_EQ(e.code, odd < 0 ? ExitCode::kOk : ExitCode::kRanksDisagree) << e.text;
        if (odd < 0) continue;
        const std::string& text = ends[static_cast<size_t>(odd)].text;
        EXPECT_TRUE(text.starts_with(str("step 6: rank ", odd,
                                         " holds other values than the other 2 ranks in "
                                         "parameters/scale (whole copy); they were last found equal after step 4")))
            << level << " " << precision << ": " << text;
      }
    }
}

// Where every slice is held by one rank alone there is nothing to compare.
TEST(Sentinel, FullShardsHaveNoCopies) {
  for (const End& e : train(3, 1, 1, "adamw.m/", nullptr, "sharding:\n  level: parameters\n"))
    EXPECT_EQ(e.code, ExitCode::kOk) << e.text;
}

TEST(Sentinel, OffNothingIsCompared) {
  for (const End& e : train(3, 0, 2, "parameters/")) EXPECT_EQ(e.code, ExitCode::kOk) << e.text;
}

// Several ranks wrong in different tensors: each tensor has its own majority. The copies are the odd ranks of a world
// of 8; the even ones end with them, silently.
TEST(Sentinel, NamesEveryOddRank) {
  std::vector<End> ends(8);
  testing::run_ranks(8, [&](Communicator& world) {
    const auto copies = world.split(world.rank() % 2, 0, "copies");
    const int place = copies->rank();
    const bool odd_group = world.rank() % 2 == 1;
    std::vector<StateEntry> state;
    for (const char* name : {"parameters/a", "parameters/b"})
      state.push_back({name, Shape{256}, 128, Tensor::full({128}, 1)});
    if (odd_group && place == 1) state[0].data.mutable_values<float>()[127] = 2;
    if (odd_group && place == 3) state[1].data.mutable_values<float>()[0] = 2;
    Sentinel sentinel(*copies, world);
    const auto [code, text] = error_of([&] { sentinel.verify(7, state); });
    ends[static_cast<size_t>(world.rank())] = {code, text};
    world.barrier("end");
  });
  for (int r = 0; r < 8; ++r) {
    const End& end = ends[static_cast<size_t>(r)];
    EXPECT_EQ(end.code, ExitCode::kRanksDisagree) << r;
    EXPECT_TRUE(r == 3 || end.text.empty()) << r << ": " << end.text;
  }
  const std::string& text = ends[3].text;
  EXPECT_TRUE(
      text.starts_with("step 7: ranks 3 and 7 hold other values than the other 2 ranks in parameters/a from "
                       "element 128, parameters/b from element 128; "))
      << text;
}

// By how many threads, and in which slices: the same digests.
TEST(Sentinel, DigestsAreThoseOfCheckpoints) {
  std::vector<float> values;
  for (int i = 0; i < 300001; ++i) values.push_back(static_cast<float>(i) * 0.37f);
  const std::vector<StateEntry> whole{{"parameters/x", Shape{300001}, 0, Tensor::of(values, {300001})}};
  const Hash128 wanted = digest_of(whole);
  for (int threads : {1, 3}) {
    Stream stream(Device{}, Stream::Mode::kInline, threads);
    WithStream with(stream);
    EXPECT_EQ(digests_of(whole), std::vector<Hash128>{wanted});
    Hash128 sum;
    for (int r = 0; r < 3; ++r)
      for (const Hash128& h : digests_of(cut_for_rank(whole, r, 3))) sum += h;
    EXPECT_EQ(sum, wanted);
  }
}

}  // namespace
}  // namespace lockstep::sentinel_test
