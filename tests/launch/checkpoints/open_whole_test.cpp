// Ranks verify a checkpoint together: damage that one of them reads is every rank's, and is said once.
#include "launch/checkpoints/open_whole.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>

#include "tests/launch/scratch.h"
#include "tests/support/files.h"
#include "tests/support/run_ranks.h"

namespace lockstep::open_whole_test {
namespace {

constexpr int64_t kTensors = 6, kElements = 5000;

Tensor values(int64_t tensor) {
  std::vector<float> v;
  for (int64_t i = 0; i < kElements; ++i) v.push_back(static_cast<float>(tensor * kElements + i) + 0.5f);
  return Tensor::of(v, {kElements});
}
std::vector<StateEntry> state() {
  std::vector<StateEntry> out;
  for (int64_t t = 0; t < kTensors; ++t) out.push_back({str("parameters/", t), Shape{kElements}, 0, values(t)});
  return out;
}
std::string save(const std::string& run, int64_t step, int writers) {
  const std::string checkpoints = run + "/checkpoints", pending = pending_checkpoint(checkpoints, step);
  begin_checkpoint(pending);
  std::vector<StoredSlice> slices;
  for (int w = 0; w < writers; ++w)
    for (StoredSlice& s : write_part(pending, w, writers, cut_for_rank(state(), w, writers))) slices.push_back(s);
  CheckpointInfo info;
  info.step = step;
  commit_checkpoint(checkpoints, info, slices, writers);
  return checkpoints + "/" + checkpoint_name(step);
}
void damage(const std::string& dir, int writers, int64_t tensor) {
  const std::string part = str(dir, "/part-0000-of-000", writers, ".h5");
  test::flip_byte_of(part, values(tensor).values<float>() + 100, 400, 9);
}
// What `action` ends with on each rank.
std::vector<std::pair<ExitCode, std::string>> ends(int ranks, const std::function<void(Communicator&)>& action) {
  std::vector<std::pair<ExitCode, std::string>> out(static_cast<size_t>(ranks));
  testing::run_ranks(ranks, [&](Communicator& comm) {
    out[static_cast<size_t>(comm.rank())] = error_of([&] { action(comm); });
    comm.barrier("end");
  });
  return out;
}

TEST(OpenWhole, EachReaderHasAShare) {
  for (int writers : {1, 2})
    for (int64_t tensor = 0; tensor < kTensors; ++tensor) {
      const Scratch folder;
      const std::string dir = save(folder.path("run"), 3, writers);
      damage(dir, writers, tensor);
      const Checkpoint c = open_checkpoint(dir);
      for (int readers : {1, 3, 40}) {
        int found = 0;
        for (int r = 0; r < readers; ++r) {
          const auto [code, text] = error_of([&] { verify_checkpoint(c, r, readers); });
          found += code == ExitCode::kBadData && contains(text, str("parameters/", tensor));
        }
        EXPECT_EQ(found, 1) << readers << " readers, tensor " << tensor;
      }
      const auto [code, text] = error_of([&] { verify_checkpoint(c, tensor < kTensors / 2 ? 1 : 0, 2); });
      if (writers == 1) {
        EXPECT_EQ(code, ExitCode::kOk) << "the other reader's half: " << text;
      }
    }
}

TEST(OpenWhole, DamageThatAnyRankReadsIsPassedOverByAll) {
  for (int64_t tensor : {int64_t{0}, kTensors - 1}) {  // one of rank 0's share, one of the last rank's
    const Scratch folder;
    const std::string run = folder.path("run");
    save(run, 2, 3);
    damage(save(run, 5, 1), 1, tensor);
    for (const auto& [code, text] : ends(3, [&](Communicator& comm) {
           const auto c = newest_whole(comm, run);
           ASSERT_TRUE(c);
           EXPECT_EQ(c->info.step, 2);
         }))
      EXPECT_EQ(code, ExitCode::kOk) << text;
  }
}

TEST(OpenWhole, NoneAfterTheLastStepThatCounts) {
  const Scratch folder;
  const std::string run = folder.path("run");
  for (int64_t step : {2, 5, 9}) save(run, step, 1);
  damage(run + "/checkpoints/" + checkpoint_name(5), 1, 0);
  for (const auto& [at_most, wanted] : {std::pair<int64_t, int64_t>{9, 9}, {8, 2}, {2, 2}, {1, -1}})
    for (const auto& [code, text] : ends(2, [&, at_most = at_most, wanted = wanted](Communicator& comm) {
           const auto c = newest_whole(comm, run, at_most);
           EXPECT_EQ(c ? c->info.step : -1, wanted) << at_most;
         }))
      EXPECT_EQ(code, ExitCode::kOk) << text;
}

TEST(OpenWhole, ARunThatSavesMeanwhile) {
  const Scratch folder;
  const std::string run = folder.path("run"), checkpoints = run + "/checkpoints";
  save(run, 1, 3);
  // Readers give up after a hundred checkpoints of which each is gone before all ranks have opened it, as may happen on
  // a busy machine. So at most 20 are saved while one is opened.
  constexpr int64_t kMostMeanwhile = 20;
  std::atomic<int64_t> opened = 0;
  std::jthread saves([&](const std::stop_token& stop) {
    int64_t saved = 0, of = 0;  // since the last one was opened, which was the `of`-th
    for (int64_t step = 2; !stop.stop_requested();) {
      if (const int64_t now = opened; now != of) saved = 0, of = now;
      if (saved++ < kMostMeanwhile) {
        save(run, step, 3);
        retire_checkpoints(checkpoints, step++, {.keep_last = 1});
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
  });
  for (const auto& [code, text] : ends(3, [&](Communicator& comm) {
         for (int i = 0; i < 50; ++i) {
           verify_checkpoint(open_whole(comm, run));  // after it was agreed on, too
           if (comm.rank() == 0) ++opened;
         }
       }))
    EXPECT_EQ(code, ExitCode::kOk) << text;
}

TEST(OpenWhole, WhereNoneIsWholeAllEndWithOneMessage) {
  const Scratch folder;
  const std::string run = folder.path("run");
  const std::string dir = save(run, 5, 1);
  damage(dir, 1, kTensors - 1);
  for (const bool itself : {false, true}) {
    int said = 0;
    for (const auto& [code, text] : ends(3, [&](Communicator& comm) { newest_whole(comm, itself ? dir : run); })) {
      EXPECT_EQ(code, ExitCode::kBadData);
      said += contains(text, "parameters/5");
    }
    EXPECT_EQ(said, 1);
  }
  std::filesystem::create_directories(folder.path("empty/checkpoints"));
  for (const auto& [code, text] :
       ends(2, [&](Communicator& comm) { EXPECT_FALSE(newest_whole(comm, folder.path("empty"))); }))
    EXPECT_EQ(code, ExitCode::kOk) << text;
  for (const char* name : {"empty", "nowhere"}) {
    const auto end = ends(2, [&](Communicator& comm) { open_whole(comm, folder.path(name)); });
    EXPECT_EQ(end[0].first, ExitCode::kMissingInput);
    EXPECT_TRUE(contains(end[0].second, name)) << end[0].second;
    EXPECT_EQ(end[1].first, ExitCode::kMissingInput);
    EXPECT_EQ(end[1].second, "");
  }
}

}  // namespace
}  // namespace lockstep::open_whole_test
