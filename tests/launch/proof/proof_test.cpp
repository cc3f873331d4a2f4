// What prove says of two runs: the first step, tensor and element that differ, and how far fast mode is off.
#include "launch/proof/proof.h"
#include "launch/training/step/shared_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "launch/checkpoints/saver.h"
#include "tests/launch/scratch.h"
#include "tests/support/run_ranks.h"

namespace lockstep::proof_test {
namespace {

ProofRecord record(int64_t first, std::vector<std::map<std::string, Hash128>> tensors, std::vector<double> losses) {
  ProofRecord r;
  r.first = first;
  r.tensors = std::move(tensors);
  r.losses = std::move(losses);
  return r;
}
const std::string kM = "adamw.m/x", kX = "parameters/x", kY = "parameters/y";

TEST(Proof, TheFirstStepThatDiffersIsNamed) {
  const ProofRecord a = record(
      0, {{{kM, {0, 0}}, {kX, {0, 1}}}, {{kM, {0, 2}}, {kX, {0, 3}}}, {{kM, {0, 4}}, {kX, {0, 5}}}}, {1.5, 1.25});
  EXPECT_FALSE(first_difference(a, a));

  ProofRecord b = a;
  b.tensors[2][kM] = {1, 4};
  auto d = first_difference(a, b);
  ASSERT_TRUE(d);
  EXPECT_EQ(d->step, 2);
  EXPECT_EQ(d->tensor, kM);
  EXPECT_EQ(d->text, "first differs after step 2 in adamw.m/x");

  b.tensors[1] = {{kM, {9, 2}}, {kX, {9, 3}}};
  b.losses[0] = 1.75;
  d = first_difference(a, b);
  ASSERT_TRUE(d);
  EXPECT_EQ(d->step, 1);
  EXPECT_EQ(d->tensor, kX) << "parameters come before moments";
  EXPECT_EQ(d->text,
            "first differs after step 1 in parameters/x (and in 1 more of 2 tensors), and in the loss, 1.5 and 1.75");

  b = a;
  b.losses[1] = std::nextafter(1.25, 2);
  d = first_difference(a, b);
  ASSERT_TRUE(d);
  EXPECT_EQ(d->tensor, "");
  EXPECT_EQ(d->step, 2);
  EXPECT_EQ(d->text, "first differs in the loss, 1.25 and 1.2500000000000002, of step 2");

  b = a;
  b.tensors[0].erase(kX);
  d = first_difference(a, b);
  ASSERT_TRUE(d);
  EXPECT_EQ(d->text, "first differs in its initial values in parameters/x");

  b = a;
  b.tensors[0][kY] = {};
  d = first_difference(a, b);
  ASSERT_TRUE(d);
  EXPECT_EQ(d->tensor, kY);

  b = a;
  b.digest = {0, 1};
  d = first_difference(a, b);
  ASSERT_TRUE(d);
  EXPECT_EQ(d->tensor, "");
  EXPECT_TRUE(contains(d->text, "data position"));
}

// A resumed run is compared from where it began; its first step's loss against the same step's.
TEST(Proof, ResumedRunsAreComparedFromTheirBeginning) {
  const ProofRecord a = record(0, {{{kX, {0, 1}}}, {{kX, {0, 2}}}, {{kX, {0, 3}}}}, {1, 2});
  ProofRecord b = record(1, {{{kX, {0, 2}}}, {{kX, {0, 3}}}}, {2});
  EXPECT_FALSE(first_difference(a, b));
  b.losses[0] = 3;
  ASSERT_TRUE(first_difference(a, b));
  EXPECT_EQ(first_difference(a, b)->step, 2);
  b.tensors[0][kX] = {7, 7};
  ASSERT_TRUE(first_difference(a, b));
  EXPECT_EQ(first_difference(a, b)->step, 1);
  EXPECT_EQ(first_difference(a, b)->tensor, kX);
}

// A weight larger than what is read at a time.
const char* kYaml =
    "train:\n  steps: 20\nbatch:\n  global: 4\n  micro: 1\nmodel:\n  name: mlp\n  hidden: [300]\ndata:\n"
    "  name: synthetic_images\n  validation: 0\n  synthetic:\n    images: 16\n    height: 64\n    width: 64\n";

// Runs `change` on every rank's state (equal memory everywhere) after saving it, then `then`.
void with_changed(int ranks, const std::function<void(const std::vector<StateEntry>&)>& change,
                  const std::function<void(Trainer&, Communicator&, const Checkpoint&)>& then) {
  const App app = builtin();
  const auto settings = load_settings(app, ConfigTree::parse(kYaml, "test.yaml"), ranks);
  SharedData data(*settings);
  const Scratch scratch;
  testing::run_ranks(ranks, [&](Communicator& comm) {
    Trainer trainer(*settings, data.open(comm), comm);
    trainer.step();
    Saver saver(comm, scratch.path(), {});
    saver.start(trainer.info(), trainer.entries_to_save());
    saver.finish();
    const Checkpoint saved = open_checkpoint(scratch.path(checkpoint_name(1)));
    change(trainer.state());
    then(trainer, comm, saved);
  });
}
float& value(const std::vector<StateEntry>& state, const std::string& name, int64_t index) {
  for (const StateEntry& e : state)
    if (e.name == name && e.offset <= index && index < e.end()) return e.data.mutable_values<float>()[index - e.offset];
  throw Error(ExitCode::kInternal, str("no ", name));
}

TEST(Proof, TheFirstElementThatDiffersIsNamed) {
  std::string big;
  int64_t size = 0;
  with_changed(
      1, [](const std::vector<StateEntry>&) {},
      [&](Trainer& t, Communicator& comm, const Checkpoint& saved) {
        for (const StateEntry& e : t.state()) {
          EXPECT_FALSE(first_element(t, comm, saved, e.name)) << e.name;
          if (e.name.starts_with("parameters/") && e.data.numel() > size) size = e.data.numel(), big = e.name;
        }
      });
  ASSERT_GT(size, 1 << 20);
  for (int ranks : {1, 3})
    for (const int64_t index : {int64_t{0}, int64_t{63}, size / 3 + 64, (int64_t{1} << 20) + 5, size - 1}) {
      float before = 0;
      std::mutex mutex;
      with_changed(
          ranks,
          [&](const std::vector<StateEntry>& state) {
            std::lock_guard lock(mutex);
            float& v = value(state, big, index);
            before = v;
            v = -v - 1;
            value(state, big, size - 1) = 77;  // a later one
          },
          [&](Trainer& t, Communicator& comm, const Checkpoint& saved) {
            const auto e = first_element(t, comm, saved, big);
            ASSERT_TRUE(e) << ranks << " ranks, " << index;
            EXPECT_EQ(e->index, index);
            EXPECT_EQ(e->a, before);
            EXPECT_EQ(e->b, index == size - 1 ? 77 : -before - 1);
            EXPECT_EQ(e->shape.numel(), size);
            EXPECT_FALSE(first_element(t, comm, saved, big.substr(0, big.size() - 6) + "bias"));
          });
    }
}

TEST(Proof, TheLargestRelativeDifferenceIsThatOfATensor) {
  std::vector<std::string> names;
  with_changed(
      1, [](const std::vector<StateEntry>&) {},
      [&](Trainer& t, Communicator& comm, const Checkpoint& saved) {
        EXPECT_EQ(largest_relative_difference(t, comm, saved).first, 0);
        for (const StateEntry& e : t.state())
          if (e.name.starts_with("parameters/")) names.push_back(e.name);
      });
  ASSERT_GE(names.size(), 4u);
  for (int ranks : {1, 2}) {
    double size = 0;
    std::mutex mutex;
    with_changed(
        ranks,
        [&](const std::vector<StateEntry>& state) {
          std::lock_guard lock(mutex);
          size = 0;
          for (const StateEntry& e : state)
            if (e.name == names[1])
              for (float v : e.data.to_vector<float>()) size = std::max<double>(size, std::abs(v));
          value(state, names[1], 3) += 0.5f;
          value(state, names[0], 0) += 1e-6f;
          value(state, "adamw.m/" + names[0].substr(11), 0) += 1000;  // moments do not count
        },
        [&](Trainer& t, Communicator& comm, const Checkpoint& saved) {
          const auto [relative, name] = largest_relative_difference(t, comm, saved);
          EXPECT_EQ(name, names[1]);
          EXPECT_NEAR(relative, 0.5 / size, 1e-5 / size);
        });
    with_changed(
        ranks,
        [&](const std::vector<StateEntry>& state) {
          std::lock_guard lock(mutex);
          value(state, names[2], 1) = std::numeric_limits<float>::quiet_NaN();
        },
        [&](Trainer& t, Communicator& comm, const Checkpoint& saved) {
          const auto [relative, name] = largest_relative_difference(t, comm, saved);
          EXPECT_TRUE(std::isnan(relative));
          EXPECT_EQ(name, names[2]);
        });
  }
}

TEST(Proof, ElementsInWords) {
  EXPECT_EQ(element_text({517, {64, 64}, 0, 0}), "element 517, [8, 5] of [64, 64]");
  EXPECT_EQ(element_text({3, {4}, 0, 0}), "element 3, [3] of [4]");
  EXPECT_EQ(bits_text(0.1f), "0.100000001 (0x3dcccccd)");
  EXPECT_EQ(bits_text(-0.0f), "-0 (0x80000000)");
}

}  // namespace
}  // namespace lockstep::proof_test
