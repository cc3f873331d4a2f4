// Saver: what is saved is what was there when it began, whatever training does meanwhile; a failure is every rank's, is
// said once, and harms no earlier checkpoint.
#include "launch/checkpoints/saver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "tests/support/files.h"
#include "tests/support/run_ranks.h"
#include "tests/support/time_bound.h"

namespace lockstep::saver_test {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TemporaryFolder;
using testing::run_ranks;

constexpr int64_t kElements = (4 << 20) + 100;  // several pieces a rank

Tensor filled(float value, int64_t n = kElements) { return Tensor::of(std::vector<float>(n, value), {n}); }
void set(const Tensor& t, float value) { std::fill_n(t.mutable_values<float>(), t.numel(), value); }
// The state of a run, as every rank holds it.
struct State {
  Tensor large = filled(0), small = filled(0, 10);
  std::vector<StateEntry> entries() const {
    return {{"parameters/large", Shape{kElements}, 0, large}, {"parameters/small", Shape{2, 5}, 0, small}};
  }
  std::vector<StateEntry> of(const Communicator& comm) const {
    return cut_for_rank(entries(), comm.rank(), comm.size());
  }
};
CheckpointInfo info_of(int64_t step) {
  CheckpointInfo i;
  i.step = step;
  i.dataset = "none";
  return i;
}
// That all elements of the checkpoint of `step` are `value`.
void expect_saved(const std::string& run, int64_t step, float value) {
  const Checkpoint c = open_checkpoint(run + "/checkpoints/" + checkpoint_name(step));
  State back;
  set(back.large, -1);
  load_entries(c, back.entries());
  int64_t others = 0;
  for (const StateEntry& e : back.entries())
    for (int64_t i = 0; i < e.data.numel(); ++i) others += e.data.values<float>()[i] != value;
  EXPECT_EQ(others, 0) << "elements of step " << step << " are of another step";
}

TEST(Saver, SavesWhatWasThereWhenItBegan) {
  for (int ranks : {1, 3}) {
    TemporaryFolder folder;
    fs::create_directory(folder / "checkpoints");
    run_ranks(ranks, [&](Communicator& comm) {
      State state;
      // Memory is readied too small, just so, or not at all.
      Saver saver(comm, folder / "checkpoints",
                  {.retention = {.keep_last = 4}, .elements = ranks == 1 ? 100 : comm.rank() * kElements / 3});
      for (int64_t step = 1; step <= 6; ++step) {
        set(state.large, static_cast<float>(step));
        set(state.small, static_cast<float>(step));
        saver.start(info_of(step), state.of(comm));
        saver.let_change();
        set(state.large, -7);  // while it is being written
        set(state.small, -7);
        comm.barrier("a step");  // training goes on, with collectives of its own
      }
      saver.finish();
    });
    for (int64_t step : {3, 4, 5, 6}) expect_saved(folder / "", step, static_cast<float>(step));
    EXPECT_EQ(list_checkpoints(folder / "").size(), 4u) << "the others were retired";
    EXPECT_EQ(open_newest(folder / "").info.ranks, ranks);
  }
}

TEST(Saver, IsFinishedByItsEndAndReportsWhatItCost) {
  TemporaryFolder folder;
  fs::create_directory(folder / "checkpoints");
  run_ranks(2, [&](Communicator& comm) {
    State state;
    {
      Saver saver(comm, folder / "checkpoints", {});
      EXPECT_TRUE(saver.completed().empty());
      saver.start(info_of(1), state.of(comm));
      saver.finish();
      const auto report = saver.completed();
      ASSERT_EQ(report.size(), 1u);
      EXPECT_EQ(report[0].step, 1);
      EXPECT_GT(report[0].stall_ms, 0);
      EXPECT_GT(report[0].seconds, 0);
      EXPECT_TRUE(saver.completed().empty()) << "once";
      set(state.large, 2);
      set(state.small, 2);
      saver.start(info_of(2), state.of(comm));
    }
    if (comm.rank() == 0) expect_saved(folder / "", 2, 2);
  });
}

// A rank that cannot write what is its own in the file of all: the pending checkpoint goes, all ranks learn it at the
// next call that waits, once, that rank with the reason; and saving goes on when there is room again.
TEST(Saver, FailureIsEveryRanksAndSaidOnce) {
  TemporaryFolder folder;
  fs::create_directory(folder / "checkpoints");
  run_ranks(3, [&](Communicator& comm) {
    State state;
    std::optional<test::FileSizeLimit> limit;  // of the process
    const auto fill = [&](int64_t step) {
      if (step == 2 && comm.rank() == 2) limit.emplace(kElements * 3);  // three quarters; rank 2 has the last third
    };
    Saver saver(comm, folder / "checkpoints", {.retention = {.keep_last = 2}, .before_write = fill});
    saver.start(info_of(1), state.of(comm));
    saver.finish();
    std::vector<StateEntry> large = state.of(comm);
    std::erase_if(large, [](const StateEntry& e) { return e.name != "parameters/large"; });
    saver.start(info_of(2), large);
    std::string said = "nothing";
    bool secondary = false;
    try {
      if (comm.rank() == 1) saver.finish();  // start waits, too
      else saver.start(info_of(3), state.of(comm));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kStorage) << e.what();
      said = e.what(), secondary = e.is_secondary();
    }
    if (comm.rank() == 2) {
      EXPECT_NE(said.find("part-0000-of-0001.h5: tensor parameters/large: not written"), said.npos) << said;
    }
    EXPECT_EQ(secondary, comm.rank() != 2) << said;
    saver.finish();  // nothing is left to be said
    limit.reset();
    comm.barrier("failed");
    if (comm.rank() == 0) {
      EXPECT_EQ(std::distance(fs::directory_iterator(folder / "checkpoints"), {}), 1) << "the pending one is gone";
      expect_saved(folder / "", 1, 0);
    }
    comm.barrier("room again");
    set(state.large, 3);
    set(state.small, 3);
    saver.start(info_of(3), state.of(comm));
    saver.finish();
  });
  expect_saved(folder / "", 3, 3);
}

// Whoever shares a machine, in whatever order the ranks lie on them: a file for each machine, one digest.
TEST(Saver, WritesAFileForEachMachine) {
  const std::vector<std::vector<std::string>> placements = {
      {"a", "a", "a", "a"}, {"a", "a", "b", "b"}, {"b", "a", "b", "a"}, {"a", "b", "b", "b"}, {"a", "b", "c", "d"}};
  std::set<std::string> digests;
  for (const auto& machines : placements) {
    TemporaryFolder folder;
    fs::create_directory(folder / "checkpoints");
    run_ranks(4, [&](Communicator& comm) {
      State state;
      for (int64_t i = 0; i < kElements; ++i) state.large.mutable_values<float>()[i] = static_cast<float>(i % 1000);
      Saver saver(comm, folder / "checkpoints", {.machine = machines[static_cast<size_t>(comm.rank())]});
      saver.start(info_of(1), state.of(comm));
      saver.finish();
    });
    const Checkpoint c = open_newest(folder / "");
    const auto files = static_cast<int64_t>(std::set<std::string>(machines.begin(), machines.end()).size());
    EXPECT_EQ(c.files, files);
    EXPECT_EQ(c.info.ranks, 4);
    EXPECT_EQ(std::distance(fs::directory_iterator(c.dir), {}), files + 1) << "and the manifest";
    digests.insert(to_hex(digest_of(c)));
  }
  EXPECT_EQ(digests.size(), 1u);
}

// Without a name for it: the ranks of this test are on one.
TEST(Saver, KnowsWhoSharesTheMachine) {
  TemporaryFolder folder;
  fs::create_directory(folder / "checkpoints");
  run_ranks(3, [&](Communicator& comm) {
    State state;
    Saver saver(comm, folder / "checkpoints", {});
    saver.start(info_of(1), state.of(comm));
    saver.finish();
  });
  const Checkpoint c = open_newest(folder / "");
  EXPECT_EQ(c.files, 1);
  EXPECT_EQ(c.slices.size(), 2u) << "each tensor in one piece";
}

TEST(Saver, RefusesAStateWithHoles) {
  TemporaryFolder folder;
  fs::create_directory(folder / "checkpoints");
  run_ranks(2, [&](Communicator& comm) {
    State state;
    Saver saver(comm, folder / "checkpoints", {});
    std::vector<StateEntry> mine = state.of(comm);
    if (comm.rank() == 1) mine.erase(mine.begin());
    saver.start(info_of(1), mine);
    if (comm.rank() == 0)
      expect_error(ExitCode::kInternal, {"parameters/large", "are in no slice"}, [&] { saver.finish(); });
    else expect_error(ExitCode::kInternal, {}, [&] { saver.finish(); });
  });
  EXPECT_FALSE(has_checkpoint(folder / ""));
}

// A rank that ends by an error while a save is under way does not keep the others waiting, and is the one to say why.
TEST(Saver, ARankThatFailsMeanwhileHoldsNobodyUp) {
  TemporaryFolder folder;
  fs::create_directory(folder / "checkpoints");
  const auto begun = std::chrono::steady_clock::now();
  expect_error(ExitCode::kNumeric, {"rank 1 gives up"}, [&] {
    run_ranks(3,
              [&](Communicator& comm) {
                State state;
                Saver saver(comm, folder / "checkpoints", {});
                // Rank 1 never begins the save that the others wait for.
                if (comm.rank() == 1) throw Error(ExitCode::kNumeric, "rank 1 gives up");
                saver.start(info_of(1), state.of(comm));
                try {
                  saver.finish();
                } catch (const Error& e) {
                  EXPECT_EQ(e.code(), ExitCode::kRankLost);
                  EXPECT_TRUE(e.is_secondary()) << "rank 1 says why: " << e.what();
                  std::this_thread::sleep_for(std::chrono::milliseconds(300));
                  throw;
                }
              },
              {.comm = {.deadline = testing::kPatience}});
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::duration<double>(testing::time_bound(10)))
      << "not only at the deadline";
  EXPECT_FALSE(has_checkpoint(folder / ""));
}

}  // namespace
}  // namespace lockstep::saver_test
