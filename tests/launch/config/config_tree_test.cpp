#include "launch/config/config_tree.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "tests/launch/scratch.h"
#include "tests/support/sanitized.h"
#include "tests/support/time_bound.h"

namespace lockstep::config_tree_test {
namespace {

using Kind = ConfigNode::Kind;

void expect_refused(const std::string& yaml, const std::string& part) {
  auto [code, message] = error_of([&] { ConfigTree::parse(yaml, "a.yaml"); });
  EXPECT_EQ(code, ExitCode::kConfig) << yaml.substr(0, 100);
  EXPECT_TRUE(contains(message, part)) << message << "\nlacks: " << part;
  EXPECT_LT(message.size(), 600u);
}

// A sanitizer's own memory is not ours to promise.
constexpr long kMaxKiB = testing::kSanitized ? 1024 * 1024 : 64 * 1024;
// Runs `f` in a child that may take one second (a minute, where the speed of this machine is not known) and 64 MiB more
// than it has; returns its exit status.
template <class F>
int run_confined(F f) {
  pid_t child = fork();
  if (child == 0) {
    long before = 0, after = 0;
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    before = usage.ru_maxrss;
    int code = 0;
    try {
      f();
    } catch (const Error& e) {
      code = static_cast<int>(e.code());
    }
    getrusage(RUSAGE_SELF, &usage);
    after = usage.ru_maxrss;
    // Processor time: other programs on this machine do not count.
    auto in_seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    const double seconds = in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
    if (after - before > kMaxKiB) fprintf(stderr, "took %ld KiB\n", after - before), code = 101;
    if (seconds > testing::time_bound(testing::kSanitized ? 10 : 1))
      fprintf(stderr, "took %f s\n", seconds), code = 102;
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(ConfigTree, EveryValueKnowsItsLine) {
  auto tree = ConfigTree::parse("seed: 3\n\noptim:\n  # learning\n  lr: 0.1\n  rules:\n    - {a: 1}\n    - a: 'x'\n",
                                "dir/a.yaml");
  const auto* optim = tree.root().find("optim");
  ASSERT_TRUE(optim);
  EXPECT_EQ(optim->where(), "dir/a.yaml:3");
  EXPECT_EQ(optim->find("lr")->where(), "dir/a.yaml:5");
  EXPECT_EQ(optim->find("lr")->scalar, "0.1");
  const auto* rules = optim->find("rules");
  ASSERT_EQ(rules->children.size(), 2u);
  EXPECT_EQ(rules->children[1].find("a")->where(), "dir/a.yaml:8");
  EXPECT_TRUE(rules->children[1].find("a")->quoted);
  EXPECT_FALSE(rules->children[0].find("a")->quoted);
}

TEST(ConfigTree, AnEmptyFileIsAnEmptyMap) {
  for (const char* text : {"", "\n", "# nothing\n", "---\n", "~"})
    EXPECT_EQ(ConfigTree::parse(text, "a.yaml").root().kind, Kind::kMap) << text;
}

TEST(ConfigTree, AnchorsAreCopiedWhereUsed) {
  auto tree = ConfigTree::parse("a: &x {b: 1}\nc: *x\n", "a.yaml");
  EXPECT_EQ(tree.root().find("c")->find("b")->scalar, "1");
  EXPECT_EQ(tree.root().find("c")->where(), "a.yaml:2");
}

TEST(ConfigTree, OverridesReplaceMergeAndEnterLists) {
  auto tree = ConfigTree::parse("optim: {lr: 1, name: sgd}\nrules:\n  - {a: 1}\n  - {a: 2}\n", "a.yaml",
                                {"optim.lr=0.5", "new.section.key=[1, 2]", "rules.1.a=7", "optim={beta: 3}", "s=a=b"});
  const auto& root = tree.root();
  EXPECT_EQ(root.find("optim")->find("lr")->scalar, "0.5");
  EXPECT_EQ(root.find("optim")->find("lr")->where(), "override 1 (optim.lr=0.5)");
  EXPECT_EQ(root.find("optim")->find("name")->scalar, "sgd");
  EXPECT_EQ(root.find("optim")->find("beta")->scalar, "3");
  EXPECT_EQ(root.find("new")->find("section")->find("key")->children.size(), 2u);
  EXPECT_EQ(root.find("rules")->children[0].find("a")->scalar, "1");
  EXPECT_EQ(root.find("rules")->children[1].find("a")->scalar, "7");
  EXPECT_EQ(root.find("s")->scalar, "a=b");
}

TEST(ConfigTree, ATildeTakesAKeyBack) {
  const char* yaml = "a: 1\nb: {c: 2, d: 3}\nl: [{x: 1}, {x: 2}]\n";
  const auto after = [&](const std::vector<std::string>& overrides) {
    return ConfigTree::parse(yaml, "t.yaml", overrides);
  };
  EXPECT_EQ(after({"~a"}).root().find("a"), nullptr);
  EXPECT_EQ(after({"~b"}).root().find("b"), nullptr);
  EXPECT_EQ(after({"~b.c"}).root().find("b")->find("c"), nullptr);
  EXPECT_EQ(after({"~b.c"}).root().find("b")->find("d")->scalar, "3");
  EXPECT_EQ(after({"~l.0"}).root().find("l")->children.at(0).find("x")->scalar, "2");
  EXPECT_EQ(after({"~l.1.x"}).root().find("l")->children.at(1).find("x"), nullptr);
  EXPECT_EQ(after({"~a", "a=5"}).root().find("a")->scalar, "5");
  EXPECT_EQ(after({"z=5", "~z"}).root().find("z"), nullptr);
  for (const char* wrong : {"~z", "~b.z", "~a.b", "~l.2", "~l.x", "~b.c.d", "~", "~b.", "~a=1", "~a "}) {
    const auto [code, message] = error_of([&] { after({wrong}); });
    EXPECT_EQ(code, ExitCode::kConfig) << wrong;
    EXPECT_TRUE(contains(message, str("override 1 (", wrong, "): "))) << message;
  }
}

TEST(ConfigTree, BadOverridesNameThemselves) {
  for (const char* bad : {"lr", "=3", "a..b=1", ".a=1", "a.=1", "a b=1", "a=[1", "a={b: 1, b: 2}", "a=\x04", "a=\xff",
                          "seed.x=1", "rules.5=1", "rules.x=1"}) {
    auto [code, message] = error_of([&] { ConfigTree::parse("seed: 1\nrules: [1, 2]\n", "a.yaml", {"fine=1", bad}); });
    EXPECT_EQ(code, ExitCode::kConfig) << bad;
    EXPECT_TRUE(message.starts_with("override 2 (")) << message;
  }
  auto [code, message] = error_of([] { ConfigTree::parse("\n\nseed: 1\n", "a.yaml", {"seed.x=1"}); });
  EXPECT_TRUE(contains(message, "seed is a value (a.yaml:3)")) << message;
}

TEST(ConfigTree, BadTextIsRefusedWithItsLine) {
  expect_refused("a: \"x\\N\"\n", "a.yaml:1: a: the escapes \\N and \\_ are not supported");
  expect_refused("a: 1\nb: 2\na: 3\n", "a.yaml:3: the key a is given twice (first in line 1)");
  expect_refused("x:\n  a: 1\n  a: 3\n", "a.yaml:3: x: the key a is given twice");
  expect_refused("a: 1\nb: [1, 2\n", "a.yaml:3: not valid YAML");
  expect_refused("a: 1\nb: \xff\n", "a.yaml:2: not UTF-8");
  expect_refused("a: \xc0\xaf\n", "a.yaml:1: not UTF-8");
  expect_refused("a: \xed\xa0\x80\n", "a.yaml:1: not UTF-8");
  expect_refused(std::string("a: 1\n\0b: 2\n", 11), "a.yaml:2: a control character (byte 0)");
  expect_refused("a: 1\n\x04\nb: 2\n", "a.yaml:2: a control character (byte 4)");
  expect_refused("- 1\n- 2\n", "a.yaml:1: a configuration is a map");
  expect_refused("hello\n", "a.yaml:1: a configuration is a map");
  expect_refused("a: 1\n---\nb: 2\n", "a second document");
  expect_refused("a: !!float 3\n", "a.yaml:1: a: a tag");
  expect_refused("a: !secret 3\n", "a tag");
  expect_refused("? [1, 2]\n: 3\n", "a key must be one word");
  expect_refused("? {a: 1}\n: 3\n", "a key must be one word");
  expect_refused("~: 3\n", "a key must be one word");
  expect_refused("a.b: 3\n", "holds a dot");
  expect_refused("a: &x {b: 1}\nc:\n  <<: *x\n", "a.yaml:3: c: merge keys");
  expect_refused("a: *nowhere\n", "a.yaml:1: not valid YAML");
  expect_refused("a: &x [1, *x]\n", "an alias inside its own anchor");
  expect_refused("a: 1\n\tb: 2\n", "a.yaml:");
  expect_refused("\xff\xfe" + std::string("a\0:\0 \0001\0", 8), "not UTF-8");
}

TEST(ConfigTree, AMissingFileIsMissingInput) {
  Scratch scratch;
  for (const std::string& path : {scratch.path("none.yaml"), scratch.path(), std::string("/dev/null/x.yaml")}) {
    auto [code, message] = error_of([&] { ConfigTree::load(path); });
    EXPECT_EQ(code, ExitCode::kMissingInput);
    EXPECT_TRUE(contains(message, path)) << message;
  }
  std::string pipe = scratch.path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { ConfigTree::load(pipe); }).first, ExitCode::kMissingInput);
}

TEST(ConfigTree, HostileFilesCostLittle) {
  Scratch scratch;
  auto refused = [&](const std::string& name) {
    int status = run_confined([&] { ConfigTree::load(scratch.path(name)); });
    EXPECT_EQ(status, 78) << name;
  };
  // a gigabyte, sparse
  scratch.write("huge.yaml", "a: 1\n");
  std::filesystem::resize_file(scratch.path("huge.yaml"), 1LL << 30);
  refused("huge.yaml");

  auto repeated = [](const std::string& unit, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += unit;
    return out;
  };
  const int kDeep = 100000;
  std::vector<std::pair<std::string, std::string>> hostile = {
      {"lists", "a: " + repeated("[", kDeep)},
      {"lists_closed", "a: " + repeated("[", kDeep) + repeated("]", kDeep)},
      {"maps", repeated("{a: ", kDeep)},
      {"mixed", repeated("[{a: ", kDeep)},
      {"quoted", repeated("{'}': ", kDeep)},  // a closing bracket in a text does not hide the depth
      {"dashes", "a:\n  " + repeated("- ", kDeep)},
      {"question", repeated("? ", kDeep)},
      {"tags", "a: " + repeated("!x ", kDeep)},
      {"colons", "a: " + repeated("b: ", kDeep)},
      {"braces_one_mib", repeated("[", 1 << 20)},
      {"commas", "a: [" + repeated("1,", kDeep) + "1]"},
      {"many_keys",
       [] {
         std::string out;
         for (int i = 0; i < 100000; ++i) out += str("k", i, ":\n");
         return out;
       }()},
      {"anchors",
       [&] {
         std::string out = "a: [";
         for (int i = 0; i < 15000; ++i) out += str("&a", i, " [");
         return out;
       }()},
      {"bomb",
       [&] {
         std::string out = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
         for (int i = 1; i < 12; ++i) {
           std::string prior = str("*a", i - 1);
           out += str("a", i, ": &a", i, " [", prior);
           for (int j = 0; j < 9; ++j) out += ", " + prior;
           out += "]\n";
         }
         return out;
       }()},
      {"depth_by_alias",
       [&] {
         std::string out = "a0: &a0 [x]\n";
         for (int i = 1; i < 2000; ++i) out += str("a", i, ": &a", i, " [*a", i - 1, "]\n");
         return out;
       }()},
      {"indent",
       [&] {
         std::string out;
         for (int i = 0; i < 1400; ++i) out += std::string(static_cast<size_t>(i), ' ') + "a:\n";
         return out;
       }()},
      {"quote", "a: \"" + std::string((1 << 20) - 10, 'x')},
      {"aliases", "a: &x 1\nb: [" + repeated("*x ,", 50000) + "]"},
  };
  for (auto& [name, text] : hostile) {
    if (text.size() > (1u << 20)) text.resize(1 << 20);
    scratch.write(name, text);
    refused(name);
  }
}

// Whatever is repeated up to the limit of size, the parser stays quick and small.
TEST(ConfigTree, RepetitionsCostLittle) {
  for (const std::string begin : {"", "a: [", "a: |\n "})
    for (const std::string piece : {"\"\"", "&a ", "a\n", "a\n\n", "- a\n", "? a\n", "#\n", "%TAG !a! b\n", "---\n",
                                    ">\n a\n", "'a\n", "\xEF\xBB\xBF", "\r"}) {
      std::string text = begin;
      while (text.size() + piece.size() < (1u << 20)) text += piece;
      int status = run_confined([&] { ConfigTree::parse(text, "a.yaml"); });
      EXPECT_TRUE(status == 0 || status == 78) << status << " for " << begin << piece;
    }
}

TEST(ConfigTree, ALargeHonestFileLoads) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += str("k", i, ": {a: [1, 2], text: \"don't [nest, this\"}\n");
  EXPECT_EQ(ConfigTree::parse("x: 'no, [really'\n", "a.yaml").root().children.size(), 1u);
  EXPECT_EQ(error_of([&] { ConfigTree::parse(text, "a.yaml"); }).first, ExitCode::kConfig);  // too many open brackets
  std::string fine;
  for (int i = 0; i < 2000; ++i) fine += str("k", i, ": {a: [1, 2], text: \"don't nest, this\"}\n");
  EXPECT_EQ(ConfigTree::parse(fine, "a.yaml").root().children.size(), 2000u);
}

}  // namespace
}  // namespace lockstep::config_tree_test
