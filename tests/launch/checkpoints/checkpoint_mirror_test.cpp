// CheckpointMirror: what it brings is whole, whatever becomes of the original meanwhile; a slow one passes over what is
// no longer the newest; what cannot be brought is said and harms nothing. And how fast is written.
#include "launch/checkpoints/checkpoint_mirror.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "launch/records/run_dir.h"
#include "tests/support/files.h"
#include "tests/support/run_ranks.h"

namespace lockstep::checkpoint_mirror_test {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TemporaryFolder;
using testing::run_ranks;

constexpr int64_t kElements = 3 << 20;  // several pieces

// The checkpoint of a step in which every element is `step`.
void save(const std::string& run, int64_t step) {
  const std::string checkpoints = RunPaths{run}.checkpoints();
  fs::create_directories(checkpoints);
  const std::string pending = pending_checkpoint(checkpoints, step);
  begin_checkpoint(pending);
  const std::vector<StateEntry> state{
      {"parameters/large", Shape{kElements}, 0,
       Tensor::of(std::vector<float>(kElements, static_cast<float>(step)), {kElements})}};
  CheckpointInfo info;
  info.step = step;
  commit_checkpoint(checkpoints, info, write_part(pending, 0, 1, state), 1);
}

std::vector<int64_t> steps_in(const std::string& run) {
  std::vector<int64_t> out;
  for (const std::string& path : list_checkpoints(run)) {
    verify_checkpoint(open_checkpoint(path));
    out.push_back(step_of_checkpoint(path));
  }
  return out;
}

MirrorOptions options_of(const TemporaryFolder& folder, const Communicator& comm, double bytes_per_s = 0) {
  fs::create_directories(RunPaths{folder / "to"}.checkpoints());
  return {folder / "from", folder / "to", {.keep_last = 2}, bytes_per_s, comm.rank() == 0};
}

TEST(CheckpointMirror, BringsWholeOnesAndTheRecords) {
  for (int ranks : {1, 3}) {
    TemporaryFolder folder;
    for (int64_t step : {1, 2, 3}) save(folder / "from", step);
    std::ofstream(RunPaths{folder / "from"}.metrics()) << "{\"step\":1}\n{\"step\":2}\n{\"st";
    fs::create_directories(RunPaths{folder / "to"}.checkpoints());
    run_ranks(ranks, [&](Communicator& comm) {
      CheckpointMirror mirror(comm, options_of(folder, comm));
      for (int64_t step : {1, 2, 3}) {
        mirror.add(step);
        mirror.finish();
      }
      EXPECT_TRUE(mirror.problems().empty());
    });
    EXPECT_EQ(steps_in(folder / "to"), (std::vector<int64_t>{3, 2})) << "as many as the run keeps";
    EXPECT_EQ(InputFile(RunPaths{folder / "to"}.metrics()).text(1000), "{\"step\":1}\n{\"step\":2}\n") << "whole lines";
    bring_back_records(folder / "to", folder / "new");
    EXPECT_EQ(InputFile(RunPaths{folder / "new"}.metrics()).text(1000), "{\"step\":1}\n{\"step\":2}\n");
  }
}

TEST(CheckpointMirror, ItsRecordsTakeThePlaceOfOlderOnes) {
  TemporaryFolder folder;
  const auto metrics = [&](const char* run) { return RunPaths{folder / run}.metrics(); };
  const auto write = [&](const char* run, const std::string& text) {
    fs::create_directories(folder / run);
    std::ofstream(metrics(run)) << text;
  };
  write("to", "{\"step\":1}\n{\"step\":2}\n");
  write("older", "{\"step\":1}\n");
  write("newer", "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  for (const char* run : {"older", "newer"}) bring_back_records(folder / "to", folder / run);
  EXPECT_EQ(InputFile(metrics("older")).text(1000), "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(InputFile(metrics("older") + ".set-aside").text(1000), "{\"step\":1}\n");
  EXPECT_EQ(InputFile(metrics("newer")).text(1000), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
}

TEST(CheckpointMirror, KeepsAllWhereTheRunDoes) {
  TemporaryFolder folder;
  for (int64_t step : {1, 2, 3}) save(folder / "from", step);
  run_ranks(1, [&](Communicator& comm) {
    CheckpointMirror mirror(comm, options_of(folder, comm));
    for (int64_t step : {1, 2, 3}) {
      mirror.add(step, step < 3);  // the state of 3 may be worse than those before
      mirror.finish();
    }
  });
  EXPECT_EQ(steps_in(folder / "to"), (std::vector<int64_t>{3, 2, 1}));
}

TEST(CheckpointMirror, OfOneThatIsRetiredMeanwhile) {
  TemporaryFolder folder;
  save(folder / "from", 1);
  run_ranks(2, [&](Communicator& comm) {
    CheckpointMirror mirror(comm, options_of(folder, comm, 40e6));
    mirror.add(1);
    if (comm.rank() == 0) fs::remove_all(RunPaths{folder / "from"}.checkpoints());
    mirror.finish();
    EXPECT_TRUE(mirror.problems().empty());
  });
  EXPECT_EQ(steps_in(folder / "to"), std::vector<int64_t>{1});
}

TEST(CheckpointMirror, PassesOverWhatIsNoLongerTheNewest) {
  TemporaryFolder folder;
  for (int64_t step : {1, 2, 3, 4}) save(folder / "from", step);
  run_ranks(2, [&](Communicator& comm) {
    CheckpointMirror mirror(comm, options_of(folder, comm, 60e6));  // a fifth of a second each
    for (int64_t step : {1, 2, 3, 4}) mirror.add(step);
    mirror.finish();
  });
  const auto steps = steps_in(folder / "to");
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps[0], 4);
  EXPECT_LT(steps.size(), 3u);
}

TEST(CheckpointMirror, SaysWhatCouldNotBeBrought) {
  TemporaryFolder folder;
  for (int64_t step : {1, 2}) save(folder / "from", step);
  run_ranks(2, [&](Communicator& comm) {
    CheckpointMirror mirror(comm, options_of(folder, comm));
    comm.barrier("test");
    const std::string checkpoints = RunPaths{folder / "to"}.checkpoints();
    if (comm.rank() == 0) {
      fs::remove_all(checkpoints);
      std::ofstream(checkpoints) << "a file";
    }
    comm.barrier("test");
    mirror.add(1);
    mirror.finish();
    const auto problems = mirror.problems();
    EXPECT_EQ(problems.size(), comm.rank() == 0 ? 1u : 0u);
    for (const auto& p : problems) EXPECT_NE(p.text.find("step 1 was not brought: "), std::string::npos) << p.text;
    comm.barrier("test");
    if (comm.rank() == 0) {
      fs::remove(checkpoints);
      fs::create_directory(checkpoints);
    }
    comm.barrier("test");
    mirror.add(7);  // which is not there
    mirror.finish();
    EXPECT_EQ(mirror.problems().size(), comm.rank() == 0 ? 1u : 0u);
    mirror.add(2);
    mirror.finish();
    EXPECT_TRUE(mirror.problems().empty());
  });
  EXPECT_EQ(steps_in(folder / "to"), std::vector<int64_t>{2});
}

TEST(WritePace, WritesAsFastAsItIsToldTo) {
  WritePace pace(10e6);
  const auto begun = std::chrono::steady_clock::now();
  pace.begin();
  for (int i = 0; i < 5; ++i) pace.wait(1'000'000, "file");  // the last begins when four are due
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  EXPECT_GE(seconds, 0.4);
  pace.give_up();
  expect_error(ExitCode::kStorage, {"file: given up"}, [&] { pace.wait(1, "file"); });
}

}  // namespace
}  // namespace lockstep::checkpoint_mirror_test
