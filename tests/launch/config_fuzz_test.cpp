// Mutated configurations: every one either binds or ends with ExitCode::kConfig, quickly.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "launch/config.h"
#include "tests/launch/scratch.h"

namespace lockstep {
namespace {

struct Rule {
  std::string pattern;
  double decay = 1;
};
std::vector<Field> fields(Rule& r) {
  return {field("pattern", r.pattern, ""), field("decay", r.decay, "").at_least(0)};
}
struct Options {
  int64_t steps = 1;
  double lr = 1;
  bool exact = true;
  std::string dir;
  std::vector<int64_t> widths;
  std::vector<std::string> names;
  std::vector<Rule> rules;
};
std::vector<Field> fields(Options& o) {
  return {field("train.steps", o.steps, "").at_least(1),
          field("optim.lr", o.lr, "").with_range(0, 1),
          field("exact", o.exact, ""),
          field("run.dir", o.dir, ""),
          field("model.widths", o.widths, ""),
          field("model.names", o.names, "").with_choices({"a", "b"}),
          list_field("optim.rules", o.rules, "")};
}

constexpr const char* kSeedText = R"(# a comment
exact: true
train:
  steps: 2000
optim: {lr: 3.0e-4, rules: [{pattern: "*.bias", decay: 0}, &r {pattern: 'x'}, *r]}
run:
  dir: "runs/\u00e4 b"
model:
  widths:
    - 64
    - 32
  names: [a, b]
text: |
  block
)";

std::string resolve(const std::string& yaml, const std::vector<std::string>& overrides) {
  Options o;
  Config config(ConfigTree::parse(yaml, "fuzz.yaml", overrides));
  config.bind("", fields(o));
  std::string text;
  config.bind("", {field("text", text, "")});
  config.finish();
  // What was accepted can be written down and read again.
  std::string dumped = config.dump_yaml(), canonical = config.text();
  Options again;
  Config second(ConfigTree::parse(dumped, "dump.yaml"));
  second.bind("", fields(again));
  second.bind("", {field("text", text, "")});
  second.finish();
  EXPECT_EQ(canonical, second.text()) << yaml;
  return canonical;
}

std::string mutate(std::string text, std::mt19937& random) {
  static const std::vector<std::string> kPieces = {"[",           "]",    "{",        "}",
                                                   ":",           ": ",   "- ",       "? ",
                                                   "&a ",         "*a",   "*r",       "!!",
                                                   "!t ",         "|",    ">",        "'",
                                                   "\"",          "#",    " #",       "\n",
                                                   "\n  ",        "\t",   "---\n",    "...\n",
                                                   "%YAML 1.2\n", ",",    "~",        "null",
                                                   "<<: ",        "0x10", "1e999",    "-1",
                                                   ".inf",        ".nan", "true",     std::string(1, '\0'),
                                                   "\x04",        "\xff", "\xc3\xa4", "\xef\xbb\xbf",
                                                   "\\",          "\\x",  "\\u12",    "@",
                                                   "`",           "=",    "\r",       "\r\n"};
  auto below = [&](size_t n) { return n ? random() % n : 0; };
  int edits = 1 + static_cast<int>(below(6));
  for (int i = 0; i < edits; ++i) {
    size_t at = below(text.size() + 1);
    switch (below(6)) {
      case 0: text.insert(at, kPieces[below(kPieces.size())]); break;
      case 1: text.erase(at, 1 + below(8)); break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 3: text.insert(at, text.substr(below(text.size() + 1), below(40))); break;
      case 4: text.resize(at); break;
      case 5:
        for (size_t n = below(60); n > 0; --n) text.insert(at, kPieces[below(8)]);
        break;
    }
  }
  return text;
}

TEST(ConfigFuzz, MutatedFilesBindOrAreRefused) {
  ASSERT_NO_THROW(resolve(kSeedText, {}));
  std::mt19937 random(20261121);
  int accepted = 0, refused = 0;
  double slowest = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string yaml = mutate(kSeedText, random);
    auto begin = std::chrono::steady_clock::now();
    auto [code, message] = error_of([&] { resolve(yaml, {}); });
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    slowest = std::max(slowest, seconds);
    if (code == ExitCode::kOk) {
      ++accepted;
    } else {
      ++refused;
      ASSERT_EQ(code, ExitCode::kConfig) << message << "\n" << yaml;
      ASSERT_TRUE(message.starts_with("fuzz.yaml:")) << message << "\n" << yaml;
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 5000);
  EXPECT_LT(slowest, 1.0);
}

TEST(ConfigFuzz, MutatedOverridesBindOrAreRefused) {
  std::mt19937 random(7);
  const std::vector<std::string> seeds = {"optim.lr=0.5", "optim.rules=[{pattern: x, decay: 2}]", "run.dir=a b",
                                          "optim.rules.0.decay=1", "model={widths: [1, 2]}"};
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string o = mutate(seeds[i % seeds.size()], random);
    auto [code, message] = error_of([&] { resolve(kSeedText, {o}); });
    if (code == ExitCode::kOk) {
      ++accepted;
    } else {
      ASSERT_EQ(code, ExitCode::kConfig) << message << "\n" << o;
    }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace lockstep
