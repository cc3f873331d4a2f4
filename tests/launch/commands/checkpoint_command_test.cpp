// lockstep checkpoint verify, diff and export, on checkpoints of several layouts.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/io/hdf5/hdf5_file.h"
#include "core/state/checkpoint.h"
#include "launch/commands/commands.h"
#include "tests/support/files.h"

namespace lockstep::checkpoint_command_test {
namespace {

using test::content;
using test::expect_error;
using test::TemporaryFolder;

constexpr int64_t kRows = 1500, kColumns = 1000;  // more than a piece

StateEntry entry(const std::string& name, const Shape& shape, float first) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), first);
  return {name, shape, 0, Tensor::of(values, {shape.numel()})};
}
std::vector<StateEntry> state() {
  return {entry("parameters/large", {kRows, kColumns}, 1), entry("parameters/a.bias", {7}, 100),
          entry("parameters/scale", {}, 5), entry("adamw.m/large", {kRows, kColumns}, 2)};
}
std::string save(const std::string& run, int64_t step, int writers, const std::vector<StateEntry>& entries,
                 const std::string& math = "seed: 1\noptim.lr: 0.1\n") {
  const std::string checkpoints = run + "/checkpoints", pending = pending_checkpoint(checkpoints, step);
  begin_checkpoint(pending);
  std::vector<StoredSlice> slices;
  for (int w = 0; w < writers; ++w)
    for (StoredSlice& s : write_part(pending, w, writers, cut_for_rank(entries, w, writers))) slices.push_back(s);
  CheckpointInfo info;
  info.step = step;
  info.position = 8 * step;
  info.math_text = math;
  commit_checkpoint(checkpoints, info, slices, writers);
  return checkpoints + "/" + checkpoint_name(step);
}

struct Said {
  int code;
  std::string text;
  bool has(const std::string& part) const { return text.find(part) != text.npos; }
};
Said command(const std::vector<std::string>& arguments) {
  ::testing::internal::CaptureStdout();
  int code = -1;
  try {
    code = checkpoint_command({}, arguments);
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
  return {code, ::testing::internal::GetCapturedStdout()};
}

TEST(Diff, OfEqualStatesInDifferentLayoutsIsZero) {
  TemporaryFolder folder;
  const std::string a = save(folder / "a", 3, 1, state()), b = save(folder / "b", 3, 4, state());
  const Said said = command({"diff", a, b});
  EXPECT_EQ(said.code, 0) << said.text;
  for (const char* part : {"step: 3\n", "parameters/large [1500, 1000]: equal\n", "adamw.m/large [1500, 1000]: equal\n",
                           "mathematics: equal\n", "\nequal\n"})
    EXPECT_TRUE(said.has(part)) << part << " is not in " << said.text;
}

TEST(Diff, CountsElementsAndNamesTheFirst) {
  TemporaryFolder folder;
  auto changed = state();
  float* large = changed[0].data.mutable_values<float>();
  const int64_t at = 1200 * kColumns + 17;  // beyond the first piece
  large[at] += 2;
  large[at + 5000] -= 3.5;
  changed[1].data.mutable_values<float>()[2] = 1102;
  changed.pop_back();
  changed.push_back(entry("adamw.v/large", {3}, 0));
  changed[2].region = Shape{1};
  const std::string a = save(folder / "a", 3, 3, state()),
                    b = save(folder / "b", 4, 2, changed, "seed: 1\noptim.lr: 0.2\n");
  const Said said = command({"diff", a, b});
  EXPECT_EQ(said.code, 1) << said.text;
  for (const char* part :
       {"step: 3 in A, 4 in B\n", "samples done: 24 in A, 32 in B\n", "optim.lr: 0.1 in A, 0.2 in B\n",
        "parameters/large [1500, 1000]: 2 of 1500000 elements differ, by 3.5 at most; the first at [1200, 17]: 1200018 "
        "in "
        "A, 1200020 in B\n",
        "parameters/a.bias [7]: 1 of 7 elements differ, by 1000 at most; the first at [2]: 102 in A, 1102 in B\n",
        "parameters/scale [] in A, [1] in B\n", "adamw.m/large [1500, 1000]: only in A\n",
        "adamw.v/large [3]: only in B\n", "different; 5 of 5 tensors differ"})
    EXPECT_TRUE(said.has(part)) << part << " is not in " << said.text;
  EXPECT_FALSE(said.has("seed")) << "only what differs of the configuration";
  expect_error(ExitCode::kMissingInput, {"nowhere"}, [&] { command({"diff", a, folder / "nowhere"}); });
}

TEST(Export, WritesWholeTensorsFromAnyLayout) {
  TemporaryFolder folder;
  for (int writers : {1, 3}) {
    const std::string run = folder / std::to_string(writers), output = run + ".h5";
    const std::string dir = save(run, 3, writers, state());
    EXPECT_EQ(command({"export", run, output}).code, 0);
    const Hdf5File file = Hdf5File::open(output);
    EXPECT_EQ(file.list(), (std::vector<std::string>{"a.bias", "large", "scale"}));
    EXPECT_EQ(file.info("large").shape, (Shape{kRows, kColumns}));
    EXPECT_EQ(file.info("scale").shape, Shape{1});
    for (const StateEntry& e : state()) {
      if (e.name.rfind("parameters/", 0) != 0) continue;
      const std::string name = e.name.substr(11);
      std::vector<float> values(static_cast<size_t>(e.data.numel()));
      file.read(name, StoredType::kFloat32, {0, file.info(name).shape[0]}, values.data());
      EXPECT_EQ(values, e.data.to_vector<float>()) << name;
    }
    EXPECT_EQ(file.int_attribute("", "step"), 3);
    EXPECT_EQ(file.string_attribute("", "digest"), to_hex(digest_of(open_checkpoint(dir))));
  }
}

TEST(Export, OverwritesNothingAndLeavesNothingBehind) {
  TemporaryFolder folder;
  const std::string run = folder / "run", dir = save(run, 3, 2, state());
  test::write_file(folder / "mine.h5", "mine");
  expect_error(ExitCode::kOutputLocked, {"mine", "already there"}, [&] {
    command({"export", run, folder / "mine.h5"});
  });
  EXPECT_EQ(content(folder / "mine.h5"), "mine");
  {
    test::FileSizeLimit limit(1 << 20);
    expect_error(ExitCode::kStorage, {"out.h5"}, [&] { command({"export", run, folder / "out.h5"}); });
  }
  const std::string moments = folder / "moments";
  save(moments, 3, 1, {entry("adamw.m/large", {3}, 0)});
  expect_error(ExitCode::kBadData, {"holds no parameters"}, [&] { command({"export", moments, folder / "out.h5"}); });
  EXPECT_EQ(folder.files(), 3) << "run, mine, moments";
}

TEST(Verify, LooksAtEveryCheckpointOfARun) {
  TemporaryFolder folder;
  const std::string run = folder / "run";
  for (int64_t step : {1, 2, 3}) save(run, step, 2, state());
  const Said whole = command({"verify", run});
  EXPECT_EQ(whole.code, 0);
  for (const char* name : {"step-00000001", "step-00000002", "step-00000003", "4 tensors, 12000032 bytes"})
    EXPECT_TRUE(whole.has(name)) << whole.text;
  const StateEntry large = cut_for_rank(state(), 1, 2)[0];  // whose first value the moments in this file lack
  const std::string part = run + "/checkpoints/step-00000002/part-0001-of-0002.h5";
  test::flip_byte_of(part, large.data.values<float>(), 400, 9);
  expect_error(ExitCode::kBadData, {part, "parameters/large"}, [&] { command({"verify", run}); });
  std::filesystem::remove(run + "/checkpoints/step-00000003/part-0000-of-0002.h5");
  expect_error(ExitCode::kBadData, {"2 of 3 checkpoints are damaged", "step-00000003/part-0000-of-0002.h5"}, [&] {
    command({"verify", run});
  });
  EXPECT_EQ(command({"verify", run + "/checkpoints/step-00000001"}).code, 0);
  expect_error(ExitCode::kMissingInput, {"nowhere"}, [&] { command({"verify", folder / "nowhere"}); });
}

TEST(Usage, IsSaid) {
  const auto usage = [](const std::vector<std::string>& wrong) -> std::string {
    try {
      command(wrong);
    } catch (const Error& e) {
      EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(ExitCode::kUsage)) << e.what();
      return e.what();
    }
    return "no error";
  };
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"diff", "a"}, {"verify", "a", "b"}, {"export", "a"}})
    EXPECT_NE(usage(wrong).find("\nusage: lockstep checkpoint " + wrong[0]), std::string::npos) << usage(wrong);
  const std::string all = usage({"inspekt", "a"});
  for (const char* part : {"there is no 'inspekt'; did you mean inspect?", "usage: lockstep checkpoint inspect DIR",
                           "lockstep checkpoint diff A B"})
    EXPECT_NE(all.find(part), std::string::npos) << all;
}

}  // namespace
}  // namespace lockstep::checkpoint_command_test
