#include "launch/records/metrics.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "tests/launch/scratch.h"

namespace lockstep::metrics_test {
namespace {

std::vector<std::string> lines(const std::string& path) {
  std::vector<std::string> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

void write_steps(MetricsWriter& writer, int64_t first, int64_t last) {
  for (int64_t s = first; s <= last; ++s) writer.write(s, {{"loss", 1.0 / static_cast<double>(s)}});
}

// Every line is valid JSON and the steps are exactly first..last.
void expect_steps(const std::string& path, int64_t first, int64_t last) {
  auto all = lines(path);
  ASSERT_EQ(static_cast<int64_t>(all.size()), last - first + 1);
  for (int64_t i = 0; i <= last - first; ++i) {
    EXPECT_EQ(json_integer(all[i], "step"), first + i);
    EXPECT_TRUE(parse_json_object(all[i])) << all[i];
  }
  std::string text = read_all(path);
  EXPECT_TRUE(text.empty() || text.back() == '\n');
}

TEST(Metrics, KeepsWhatEarlierAttemptsMeasured) {
  const Scratch scratch;
  const std::string path = scratch.path("metrics.jsonl"), earlier = scratch.path("metrics.earlier.jsonl");
  {
    MetricsWriter writer(path);
    write_steps(writer, 1, 6);
  }
  EXPECT_FALSE(std::filesystem::exists(earlier));
  for (const int64_t resumed : {4, 2}) {
    MetricsWriter writer(path, resumed);
    write_steps(writer, resumed + 1, 5);
  }
  expect_steps(path, 1, 5);
  std::vector<int64_t> steps;
  for (const std::string& line : lines(earlier)) steps.push_back(json_integer(line, "step").value_or(-1));
  EXPECT_EQ(steps, (std::vector<int64_t>{5, 6, 3, 4, 5}));
}

TEST(Json, EveryLineIsValidWhateverTheValues) {
  double inf = std::numeric_limits<double>::infinity();
  std::string line = json_line({{"step", int64_t{3}},
                                {"loss", std::nan("")},
                                {"grad_norm", -inf},
                                {"lr", 3e-4},
                                {"ok", true},
                                {"none", nullptr},
                                {"text", std::string("a\"b\n\xff")}});
  EXPECT_EQ(line,
            "{\"step\":3,\"loss\":null,\"grad_norm\":null,\"lr\":0.0003,\"ok\":true,\"none\":null,"
            "\"text\":\"a\\\"b\\n\xEF\xBF\xBD\"}");
  auto back = parse_json_object(line);
  ASSERT_TRUE(back);
  EXPECT_EQ(std::get<int64_t>((*back)[0].second), 3);
  EXPECT_EQ(std::get<double>((*back)[3].second), 3e-4);
}

TEST(Json, DoublesReadBackTheSame) {
  for (double v : {0.1, 1.0 / 3, 1e-310, 1.7976931348623157e308, -0.0, 123456789.0}) {
    auto back = parse_json_object(json_line({{"v", v}}));
    ASSERT_TRUE(back);
    EXPECT_EQ(std::get<double>((*back)[0].second), v);
  }
}

TEST(Json, HostileTextIsRefused) {
  for (const std::string& bad :
       {std::string(""), std::string("{"), std::string("[1]"), std::string("{\"a\":}"), std::string("nul"),
        "{\"a\":" + std::string(100000, '['), "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}"})
    EXPECT_FALSE(parse_json_object(bad)) << bad.substr(0, 40);
  EXPECT_FALSE(json_integer("{\"step\":1.5}", "step"));
}

TEST(Metrics, StepsGrowAcrossResumes) {
  Scratch scratch;
  std::string path = scratch.path("metrics.jsonl");
  {
    MetricsWriter writer(path);
    EXPECT_EQ(writer.last_step(), -1);
    write_steps(writer, 1, 17);
  }
  {  // the checkpoint was of step 10: 11 to 17 are computed again
    MetricsWriter writer(path, 10);
    EXPECT_EQ(writer.last_step(), 10);
    expect_steps(path, 1, 10);
    write_steps(writer, 11, 20);
  }
  expect_steps(path, 1, 20);
  {  // nothing to drop: not one byte is rewritten
    auto before = std::filesystem::last_write_time(path);
    MetricsWriter writer(path, 20);
    EXPECT_EQ(std::filesystem::last_write_time(path), before);
    write_steps(writer, 21, 21);
  }
  expect_steps(path, 1, 21);
  const auto folder = std::filesystem::path(path).parent_path();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2) << "it, and metrics.earlier.jsonl";
}

TEST(Metrics, ResumedFileEqualsTheUninterruptedOne) {
  Scratch scratch;
  {
    MetricsWriter whole(scratch.path("a"));
    write_steps(whole, 1, 30);
  }
  { MetricsWriter(scratch.path("b")).write(1, {{"loss", 1.0}}); }
  {
    MetricsWriter first(scratch.path("b"), 0);
    write_steps(first, 1, 23);
  }
  MetricsWriter second(scratch.path("b"), 15);
  write_steps(second, 16, 30);
  EXPECT_EQ(read_all(scratch.path("a")), read_all(scratch.path("b")));
}

TEST(Metrics, TornForeignAndRepeatedLinesAreDropped) {
  Scratch scratch;
  std::string path = scratch.write("m",
                                   "{\"step\":1}\nnoise\n{\"loss\":3}\n{\"step\":2,\"loss\":1}\n{\"step\":2}\n"
                                   "{ \"step\": 3 }\n{\"step\":4,\"lo");
  MetricsWriter writer(path);
  EXPECT_EQ(writer.last_step(), 3);
  expect_steps(path, 1, 3);
  writer.write(4, {});
  expect_steps(path, 1, 4);
}

TEST(Metrics, AStepTwiceIsAMistakeOfTheProgram) {
  Scratch scratch;
  MetricsWriter writer(scratch.path("m"));
  writer.write(3, {});
  EXPECT_EQ(error_of([&] { writer.write(3, {}); }).first, ExitCode::kInternal);
}

TEST(Metrics, AFullDiskDropsCountsAndGoesOn) {
  MetricsWriter writer("/dev/full");
  write_steps(writer, 1, 5);
  EXPECT_EQ(writer.dropped(), 5);
}

// A limit on the file's size lets a part of a line through, as a disk does that fills up.
TEST(Metrics, APartlyWrittenLineIsTakenBack) {
  Scratch scratch;
  std::string path = scratch.path("m");
  pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit = {1000, 1000000};
    setrlimit(RLIMIT_FSIZE, &limit);
    MetricsWriter writer(path);
    write_steps(writer, 1, 100);
    int64_t dropped = writer.dropped();
    limit.rlim_cur = 1000000;  // somebody made room
    setrlimit(RLIMIT_FSIZE, &limit);
    write_steps(writer, 101, 103);
    _exit(dropped > 0 && dropped < 100 && writer.dropped() == dropped ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  auto all = lines(path);
  ASSERT_GT(all.size(), 10u);
  EXPECT_LT(all.size(), 100u);
  for (const auto& line : all) EXPECT_TRUE(parse_json_object(line)) << line;
  EXPECT_EQ(json_integer(all.back(), "step"), 103);
}

TEST(Metrics, APlaceThatCannotBeWrittenIsRefused) {
  Scratch scratch;
  scratch.write("file", "");
  auto [code, message] = error_of([&] { MetricsWriter writer(scratch.path("file/metrics.jsonl")); });
  EXPECT_EQ(code, ExitCode::kOutputLocked);
  EXPECT_TRUE(contains(message, "file/metrics.jsonl")) << message;
}

}  // namespace
}  // namespace lockstep::metrics_test
