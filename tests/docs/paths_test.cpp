// The paths of docs/architecture.md, in a run that is traced: the first function of each numbered step is visited, in
// the order of the page.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/trace.h"
#include "launch/app.h"
#include "tests/launch/scratch.h"

namespace lockstep::paths_test {
namespace {

struct Step {
  std::string file, function;
};

// By the path's name: "gradient", "sample", "YAML key", "checkpoint entry", "generated token".
std::map<std::string, std::vector<Step>> paths_of(const std::string& page) {
  std::ifstream in(page);
  EXPECT_TRUE(in) << page;
  constexpr std::string_view kSection = "## The path of a ";
  std::map<std::string, std::vector<Step>> paths;
  std::vector<Step>* path = nullptr;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("## ")) path = line.starts_with(kSection) ? &paths[line.substr(kSection.size())] : nullptr;
    // "3. `file:function` ..."
    const size_t number = line.find_first_not_of("0123456789");
    if (!path || number == 0 || line.compare(std::min(number, line.size()), 3, ". `") != 0) continue;
    const size_t begin = number + 3, colon = line.find(':', begin), end = line.find('`', begin);
    if (colon < end) path->push_back({line.substr(begin, colon - begin), line.substr(colon + 1, end - colon - 1)});
  }
  return paths;
}

int lockstep(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "lockstep");
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  return run_program(static_cast<int>(argv.size()), argv.data(), builtin());
}

TEST(Architecture, ATracedRunVisitsEachPathInOrder) {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += str("line ", i, " of some text\n");
  const std::string text = scratch.write("text.txt", lines), data = scratch.path("text.h5");
  const std::string yaml = scratch.write(
      "run.yaml", str("run: {dir: ", scratch.path("run"), "}\n", "train: {steps: 2}\n",
                      "batch: {global: 4, micro: 1}\n", "model: {name: gpt, layers: 1, heads: 1, width: 16}\n",
                      "data: {path: ", data, ", context: 8, prefetch: 1}\n"));
  start_trace();
  EXPECT_EQ(lockstep({"data", "import", "text", text, data}), 0);
  EXPECT_EQ(lockstep({"train", yaml, "--ranks", "2"}), 0);
  EXPECT_EQ(lockstep({"train", yaml, "train.steps=3", "--ranks", "2", "--resume"}), 0);
  EXPECT_EQ(lockstep({"generate", scratch.path("run"), "--prompt", "line", "--tokens", "3"}), 0);
  stop_trace();
  const Trace trace = take_trace();
  ASSERT_EQ(trace.lost, 0);

  const auto paths = paths_of(LOCKSTEP_SOURCE "/docs/architecture.md");
  ASSERT_EQ(paths.size(), 5u);
  EXPECT_LE(paths.at("gradient").size(), 9u);
  for (auto& [name, steps] : paths) {
    EXPECT_GE(steps.size(), 7u) << name;
    auto at = trace.spans.begin();
    for (const Step& step : steps) {
      at = std::find_if(at, trace.spans.end(), [&](const Span& s) {
        return s.file && s.rank == 0 && std::string_view(s.file).ends_with("/" + step.file) &&
               std::string_view(s.name).find("::" + step.function + "(") != std::string_view::npos;
      });
      ASSERT_NE(at, trace.spans.end()) << "the path of a " << name << ": " << step.file << ":" << step.function
                                       << " is not visited after the steps before it";
    }
  }
}

}  // namespace
}  // namespace lockstep::paths_test
