#include "launch/records/run_dir.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/io/files.h"
#include "core/io/json.h"
#include "tests/launch/scratch.h"

namespace lockstep::run_dir_test {
namespace {

TEST(RunDir, MakesWhatARunNeeds) {
  Scratch scratch;
  RunDir run(scratch.path("a/b"), false);
  EXPECT_FALSE(run.resumed());
  EXPECT_TRUE(std::filesystem::is_directory(run.paths().checkpoints()));
  EXPECT_TRUE(std::filesystem::is_directory(run.paths().tensorboard()));
  EXPECT_EQ(run.paths().metrics(), scratch.path("a/b") + "/metrics.jsonl");
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("a/b")))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".probe")) << entry.path();
}

TEST(RunDir, ARunIsContinuedOnlyWhenAsked) {
  Scratch scratch;
  std::string dir = scratch.path("run");
  { RunDir run(dir, false); }
  { RunDir run(dir, false); }  // begun, but nothing was computed: no run yet
  scratch.write("run/metrics.jsonl", "{\"step\":1}\n");
  auto [code, message] = error_of([&] { RunDir run(dir, false); });
  EXPECT_EQ(code, ExitCode::kOutputLocked);
  EXPECT_TRUE(contains(message, dir) && contains(message, "--resume")) << message;
  EXPECT_EQ(read_all(scratch.path("run/metrics.jsonl")), "{\"step\":1}\n");
  EXPECT_TRUE(RunDir(dir, true).resumed());
  std::filesystem::remove(scratch.path("run/metrics.jsonl"));
  std::filesystem::create_directories(dir + "/checkpoints/step-10");
  EXPECT_EQ(error_of([&] { RunDir run(dir, false); }).first, ExitCode::kOutputLocked);
  EXPECT_FALSE(RunDir(scratch.path("fresh"), true).resumed());  // a requeued job may find nothing yet
}

TEST(RunDir, ConfigIsReplacedButNeverSomebodyElses) {
  Scratch scratch;
  RunDir run(scratch.path("run"), false);
  run.write_config("seed: 1\n");
  run.write_config("seed: 2\n");
  EXPECT_TRUE(contains(read_all(run.paths().config()), "seed: 2\n"));
  scratch.write("run/config.yaml", "seed: 3  # by hand\n");
  auto [code, message] = error_of([&] { run.write_config("seed: 2\n"); });
  EXPECT_EQ(code, ExitCode::kOutputLocked);
  EXPECT_TRUE(contains(message, "config.yaml")) << message;
  EXPECT_EQ(read_all(run.paths().config()), "seed: 3  # by hand\n");
}

// Root passes every permission bit, so these are places where nobody can make a directory.
TEST(RunDir, PlacesThatCannotBeWrittenAreRefused) {
  Scratch scratch;
  scratch.write("file", "mine");
  for (const std::string& dir : {scratch.path("file"), scratch.path("file/run"), std::string("/proc/lockstep/run"),
                                 std::string("/proc"), std::string("/dev/null/run"), std::string()}) {
    auto [code, message] = error_of([&] { RunDir run(dir, false); });
    EXPECT_EQ(code, ExitCode::kOutputLocked) << dir << ": " << message;
    EXPECT_TRUE(contains(message, dir)) << message;
  }
  EXPECT_EQ(read_all(scratch.path("file")), "mine");
  // A run directory whose checkpoints cannot be written
  scratch.write("run/checkpoints", "");
  std::filesystem::create_directories(scratch.path("run"));
  scratch.write("run/checkpoints", "a file in the way");
  EXPECT_EQ(error_of([&] { RunDir run(scratch.path("run"), false); }).first, ExitCode::kOutputLocked);
}

// As an ordinary user, which a child becomes where the test runs as root.
TEST(RunDir, PermissionsAreRespected) {
  Scratch scratch;
  std::string dir = scratch.path("run");
  std::filesystem::permissions(scratch.path(), std::filesystem::perms(0755));
  std::filesystem::create_directories(dir);
  std::filesystem::permissions(dir, std::filesystem::perms(0555));
  pid_t child = fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) _exit(1);
    _exit(static_cast<int>(error_of([&] { RunDir run(dir, false); }).first));
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ExitCode::kOutputLocked));
  std::filesystem::permissions(dir, std::filesystem::perms(0755));
}

// A child that holds the run directory until it is killed.
pid_t hold(const std::string& dir) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    close(ready[0]);
    try {
      RunDir run(dir, true);
      (void)!write(ready[1], "x", 1);
      for (;;) pause();
    } catch (...) {
    }
    _exit(1);
  }
  close(ready[1]);
  char c = 0;
  EXPECT_EQ(read(ready[0], &c, 1), 1);
  close(ready[0]);
  return child;
}

TEST(RunDir, ASecondLaunchIsRefusedAndNamesTheFirst) {
  Scratch scratch;
  std::string dir = scratch.path("run");
  pid_t child = hold(dir);
  for (bool resume : {false, true}) {
    auto [code, message] = error_of([&] { RunDir run(dir, resume); });
    EXPECT_EQ(code, ExitCode::kOutputLocked);
    EXPECT_TRUE(contains(message, str("in use by process ", child, " on "))) << message;
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  // What it left behind is no obstacle.
  EXPECT_TRUE(contains(read_all(dir + "/lock"), str("\"pid\":", child)));
  RunDir run(dir, false);
  EXPECT_TRUE(contains(read_all(dir + "/lock"), str("\"pid\":", ::getpid())));
}

TEST(RunDir, WithinOneProcessTooThereIsOneOwner) {
  Scratch scratch;
  {
    RunDir first(scratch.path("run"), false);
    EXPECT_EQ(error_of([&] { RunDir second(scratch.path("run"), false); }).first, ExitCode::kOutputLocked);
  }
  RunDir third(scratch.path("run"), false);
}

TEST(RunDir, AForeignLockFileIsNoObstacle) {
  Scratch scratch;
  std::filesystem::create_directories(scratch.path("run"));
  for (const std::string& text : {std::string("garbage"), std::string("{\"pid\":\"x\"}"), std::string(100000, '[')}) {
    scratch.write("run/lock", text);
    EXPECT_NO_THROW(RunDir(scratch.path("run"), false));
  }
}

TEST(RunDir, FailureIsOneJsonObject) {
  Scratch scratch;
  std::string dir = scratch.path("run");
  {
    RunDir run(dir, false);
    const std::string message = "loss is \"nan\"\nat step 7";
    write_failure(dir, {.code = ExitCode::kNumeric, .rank = 2, .step = 7, .message = message, .equal_step = 5});
    auto object = parse_json_object(read_all(run.paths().failure()));
    ASSERT_TRUE(object);
    EXPECT_EQ(json_integer(read_all(run.paths().failure()), "exit_code"), 70);
    EXPECT_EQ(json_integer(read_all(run.paths().failure()), "rank"), 2);
    EXPECT_EQ(json_integer(read_all(run.paths().failure()), "step"), 7);
    EXPECT_EQ(json_integer(read_all(run.paths().failure()), "equal_step"), 5);
    EXPECT_EQ((*object)[1].first, "message");
    EXPECT_EQ(std::get<std::string>((*object)[1].second), message);
  }
  RunDir again(dir, false);
  EXPECT_FALSE(std::filesystem::exists(again.paths().failure()));  // the next attempt begins without it
  write_failure("/dev/null/run", {});                              // says nothing, throws nothing
}

TEST(RunDir, TooLittleSpaceIsSaidBeforehand) {
  Scratch scratch;
  EXPECT_NO_THROW(require_free_space(scratch.path(), 1, "a checkpoint needs"));
  auto [code, message] = error_of([&] { require_free_space(scratch.path(), int64_t{1} << 60, "a checkpoint needs"); });
  EXPECT_EQ(code, ExitCode::kStorage);
  EXPECT_TRUE(contains(message, "a checkpoint needs 1024 PiB")) << message;
}

TEST(Files, ReplacingIsAllOrNothing) {
  Scratch scratch;
  std::string path = scratch.write("f", "old");
  replace_file(path, "new text");
  EXPECT_EQ(read_all(path), "new text");
  EXPECT_EQ(error_of([] { replace_file("/proc/none/f", "x"); }).first, ExitCode::kOutputLocked);
  std::filesystem::create_directories(scratch.path("d/x"));
  EXPECT_NE(error_of([&] { replace_file(scratch.path("d"), "x"); }).first, ExitCode::kOk);
  int files = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(scratch.path())) ++files;
  EXPECT_EQ(files, 2);  // no temporary is left
}

}  // namespace
}  // namespace lockstep::run_dir_test
