#include "launch/config/config.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "launch/config/did_you_mean.h"
#include "launch/config/other_names.h"
#include "launch/config/resumed_config.h"
#include "launch/config/run_length.h"
#include "launch/config/settings.h"
#include "optim/optimizer.h"
#include "tests/launch/scratch.h"

namespace lockstep::config_test {
namespace {

struct Rule {
  std::string pattern;
  double decay = 1;
  bool frozen = false;
  std::string note;
};
std::vector<Field> fields(Rule& r) {
  return {field("pattern", r.pattern, "parameter names"), field("decay", r.decay, "weight decay").at_least(0),
          field("frozen", r.frozen, "not trained"), field("note", r.note, "for people").without_effect_on_math()};
}

enum class Reduce { kExact, kFast };

struct Options {
  int64_t seed = 1;
  double lr = 3e-4;
  bool nesterov = false;
  std::string dir = "runs/a";
  std::string name = "adamw";
  std::vector<int64_t> widths = {64, 32};
  std::vector<double> betas = {0.9, 0.999};
  std::vector<std::string> tags;
  Reduce reduce = Reduce::kExact;
  std::vector<Rule> rules;
};
std::vector<Field> top_fields(Options& o) {
  return {field("seed", o.seed, "random seed").at_least(0),
          enum_field("reduce", o.reduce, {{"exact", Reduce::kExact}, {"fast", Reduce::kFast}}, "sum of gradients"),
          field("run.dir", o.dir, "where results go").without_effect_on_math()};
}
std::vector<Field> optim_fields(Options& o) {
  return {field("lr", o.lr, "learning rate").with_unit("per step").with_range(0, 10),
          field("nesterov", o.nesterov, "look ahead"),
          field("name", o.name, "optimizer").with_choices({"sgd", "adamw"}),
          field("widths", o.widths, "layers").at_least(1),
          field("betas", o.betas, "moments").with_range(0, 1),
          field("tags", o.tags, "words"),
          list_field("rules", o.rules, "by parameter name")};
}

struct Bound {
  Options options;
  Config config;
};
Bound bound(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  Bound b;
  b.config = Config(ConfigTree::parse(yaml, "a.yaml", overrides));
  b.config.bind("", top_fields(b.options));
  b.config.bind("optim", optim_fields(b.options));
  b.config.finish();
  return b;
}

void expect_error(const std::string& yaml, const std::string& message, const std::vector<std::string>& overrides = {}) {
  auto [code, found] = error_of([&] { bound(yaml, overrides); });
  EXPECT_EQ(code, ExitCode::kConfig) << yaml;
  EXPECT_EQ(found, message);
}

constexpr const char* kFull = R"(
seed: 7
reduce: fast
run: {dir: "some where/ä"}
optim:
  lr: 1e-2
  nesterov: true
  name: sgd
  widths: [3, 1e3]
  betas: [0, 1]
  tags: [a, "b c", 'true', "7"]
  rules:
    - pattern: "*.bias"
      decay: 0
    - {frozen: true, pattern: emb, note: "why: because"}
)";

TEST(Config, WithoutAFileEverythingKeepsItsDefault) {
  auto b = bound("");
  EXPECT_EQ(b.options.seed, 1);
  EXPECT_EQ(b.options.lr, 3e-4);
  EXPECT_EQ(b.options.widths, (std::vector<int64_t>{64, 32}));
  EXPECT_FALSE(b.config.given("seed"));
  EXPECT_EQ(b.config.place("optim.lr"), "optim.lr (default)");
}

TEST(Config, EveryTypeIsRead) {
  auto b = bound(kFull, {"seed=9"});
  const auto& o = b.options;
  EXPECT_EQ(o.seed, 9);
  EXPECT_EQ(o.reduce, Reduce::kFast);
  EXPECT_EQ(o.dir, "some where/ä");
  EXPECT_EQ(o.lr, 0.01);
  EXPECT_TRUE(o.nesterov);
  EXPECT_EQ(o.name, "sgd");
  EXPECT_EQ(o.widths, (std::vector<int64_t>{3, 1000}));
  EXPECT_EQ(o.betas, (std::vector<double>{0, 1}));
  EXPECT_EQ(o.tags, (std::vector<std::string>{"a", "b c", "true", "7"}));
  ASSERT_EQ(o.rules.size(), 2u);
  EXPECT_EQ(o.rules[0].pattern, "*.bias");
  EXPECT_EQ(o.rules[0].decay, 0);
  EXPECT_TRUE(o.rules[1].frozen);
  EXPECT_EQ(o.rules[1].decay, 1);
  EXPECT_TRUE(b.config.given("optim.lr"));
  EXPECT_EQ(b.config.place("optim.lr"), "a.yaml:6: optim.lr");
  EXPECT_EQ(b.config.place("seed"), "override 1 (seed=9): seed");
}

TEST(Config, AListInTheFileReplacesTheDefaultList) {
  Options o;
  o.rules.emplace_back().pattern = "default";
  Config config(ConfigTree::parse("optim: {rules: [{pattern: mine}]}", "a.yaml"));
  config.bind("optim", optim_fields(o));
  ASSERT_EQ(o.rules.size(), 1u);
  EXPECT_EQ(o.rules[0].pattern, "mine");
}

TEST(Config, WrongTypesNamePlaceKeyExpectedAndFound) {
  expect_error("\nseed: many\n", "a.yaml:2: seed: expected an integer, found 'many'");
  expect_error("seed: 2.5\n", "a.yaml:1: seed: expected an integer, found '2.5'");
  expect_error("seed: \"3\"\n", "a.yaml:1: seed: expected an integer, found the text \"3\"");
  expect_error("seed:\n", "a.yaml:1: seed: expected an integer, found nothing");
  expect_error("seed: [1]\n", "a.yaml:1: seed: expected an integer, found a list");
  expect_error("seed: {a: 1}\n", "a.yaml:1: seed: expected an integer, found a section with keys below it");
  expect_error("seed: 99999999999999999999\n",
               "a.yaml:1: seed: the integer '99999999999999999999' does not fit 64 bits");
  expect_error("seed: 1e30\n", "a.yaml:1: seed: expected an integer, found '1e30'");
  expect_error("seed: 1-2\n", "a.yaml:1: seed: expected an integer, found '1-2'");
  expect_error("optim:\n  lr: fast\n", "a.yaml:2: optim.lr: expected a number, found 'fast'");
  expect_error("optim:\n  lr: nan\n", "a.yaml:2: optim.lr: expected a number, found 'nan'; infinity is written .inf");
  expect_error("optim:\n  lr: 1e999\n", "a.yaml:2: optim.lr: the number '1e999' does not fit fp64");
  expect_error("optim:\n  nesterov: yes\n", "a.yaml:2: optim.nesterov: expected true or false, found 'yes'");
  expect_error("run:\n  dir:\n", "a.yaml:2: run.dir: expected a text, found nothing; an empty text is \"\"");
  expect_error("optim:\n  widths: 3\n",
               "a.yaml:2: optim.widths: expected a list of integers, found '3'; write [value, value]");
  expect_error("optim:\n  widths:\n    - 3\n    - x\n", "a.yaml:4: optim.widths[1]: expected an integer, found 'x'");
  expect_error("optim: adamw\n", "a.yaml:1: optim is a section: put its keys (lr, ...) below it, indented");
  expect_error("", "override 1 (seed=x): seed: expected an integer, found 'x'", {"seed=x"});
}

TEST(Config, RangesAndChoices) {
  expect_error("seed: -1\n", "a.yaml:1: seed: -1 is out of range: allowed is >= 0");
  expect_error("optim: {lr: 11}\n", "a.yaml:1: optim.lr: 11 per step is out of range: allowed is 0 to 10");
  expect_error("optim: {lr: .inf}\n", "a.yaml:1: optim.lr: .inf per step is out of range: allowed is 0 to 10");
  expect_error("optim: {widths: [2, 0]}\n", "a.yaml:1: optim.widths[1]: 0 is out of range: allowed is >= 1");
  expect_error("\nreduce: exakt\n",
               "a.yaml:2: reduce: 'exakt' is not a choice here: exact | fast; did you mean exact?");
  expect_error("optim: {name: lion}\n", "a.yaml:1: optim.name: 'lion' is not a choice here: sgd | adamw");
}

TEST(Config, UnknownKeysAreAllListedWithTheLikelyOne) {
  expect_error("sead: 3\n", "a.yaml:1: unknown key sead; did you mean seed?");
  expect_error("lr: 3\n", "a.yaml:1: unknown key lr; did you mean optim.lr?");
  expect_error("optim:\n  nestorov: true\n  zzz: 1\n",
               "a.yaml:2: unknown key optim.nestorov; did you mean optim.nesterov?\na.yaml:3: unknown key optim.zzz");
  expect_error("optm:\n  lr: 1\n", "a.yaml:1: unknown key optm; did you mean optim?");
  expect_error("run: 3\n", "a.yaml:1: run is a section: put its keys (dir, ...) below it, indented");
  expect_error("optim:\n  rules:\n    - patern: x\n",
               "a.yaml:3: optim.rules[0]: unknown key patern; did you mean pattern?");
  expect_error("", "override 1 (optim.lrr=3): unknown key optim.lrr; did you mean optim.lr?", {"optim.lrr=3"});
  EXPECT_NO_THROW(bound("run:\noptim: {}\n"));  // an empty section is no mistake
  auto [code, message] = error_of([] {
    std::string yaml;
    for (int i = 0; i < 50; ++i) yaml += str("zz", i, ": 1\n");
    bound(yaml);
  });
  EXPECT_TRUE(contains(message, "... and 40 more")) << message;
}

struct Gpt {
  int64_t width = 128;
};
std::vector<Field> fields(Gpt& g) { return {field("width", g.width, "channels")}; }
struct Convnet {
  int64_t channels = 8, width = 3;
};
std::vector<Field> fields(Convnet& c) {
  return {field("channels", c.channels, "of the first layer"), field("width", c.width, "of a kernel")};
}

TEST(Config, KeysOfAnotherChoiceAreWithoutEffect) {
  auto run = [](const std::string& yaml) {
    Gpt gpt;
    Convnet convnet;
    Config config(ConfigTree::parse(yaml, "a.yaml"));
    config.bind("model", fields(gpt));
    config.know("model", fields(convnet), "has an effect only with model.name: convnet");
    config.finish();
    return gpt.width;
  };
  EXPECT_EQ(run("model: {width: 256}"), 256);  // bound here, whoever else knows the name
  auto [code, message] = error_of([&] { run("model:\n  width: 1\n  channels: 4\n"); });
  EXPECT_EQ(code, ExitCode::kConfig);
  EXPECT_EQ(message,
            "a.yaml:3: model.channels: key without effect in this run: it has an effect only with "
            "model.name: convnet");
}

TEST(Config, OfAnOlderCheckpointLacksWhatShapesNoResult) {
  CheckpointInfo info;
  info.math_text = "batch.micro: 2\nschedule.steps: 4\ntrain.loss_rows: 64\ntrain.loss_rows_of: 1\n";
  info.config = "train:\n  steps: 4  # default\n  loss_rows: 64  # override 1\n";
  EXPECT_EQ(resolved_math_text(info), "batch.micro: 2\nschedule.steps: 4\ntrain.loss_rows_of: 1\n");
  EXPECT_EQ(train_integer_in(info.config, "loss_rows"), 64);
  EXPECT_EQ(train_integer_in("seed: 1\n", "loss_rows"), 0);
  info.math_text = "batch.micro: 2\nschedule.steps: 4\ntrain.loss_rows: 64";
  EXPECT_EQ(resolved_math_text(info), "batch.micro: 2\nschedule.steps: 4\n");
}

TEST(Config, CanonicalTextIsSortedAndShort) {
  auto b = bound(kFull);
  EXPECT_EQ(b.config.text(),
            "optim.betas: [0, 1]\noptim.lr: 0.01\noptim.name: sgd\noptim.nesterov: true\n"
            "optim.rules: [{pattern: \"*.bias\", decay: 0, frozen: false, note: \"\"}, "
            "{pattern: emb, decay: 1, frozen: true, note: \"why: because\"}]\n"
            "optim.tags: [a, \"b c\", \"true\", \"7\"]\noptim.widths: [3, 1000]\nreduce: fast\n"
            "run.dir: \"some where/ä\"\nseed: 7\n");
  EXPECT_FALSE(contains(b.config.math_text(), "run.dir"));
  EXPECT_FALSE(contains(b.config.math_text(), "note"));
  EXPECT_TRUE(contains(b.config.math_text(), "optim.rules: [{pattern: \"*.bias\", decay: 0, frozen: false}, "));
}

TEST(Config, CanonicalTextIgnoresOrderSpellingAndOrigin) {
  auto a = bound("seed: 4\noptim: {lr: 0.001, name: sgd}\n");
  auto b = bound("optim:\n  name: \"sgd\"\n  lr: 1.0e-3\n\nseed: +4  # words\nreduce: exact\nrun: {dir: elsewhere}\n");
  auto c = bound("", {"optim.name=sgd", "seed=4", "optim.lr=.001"});
  EXPECT_EQ(a.config.math_text(), b.config.math_text());
  EXPECT_EQ(a.config.math_text(), c.config.math_text());
  EXPECT_NE(a.config.text(), b.config.text());
  EXPECT_NE(a.config.math_text(), bound("seed: 5").config.math_text());
}

TEST(Config, TheResolvedFileLoadsToTheSameValues) {
  for (auto overrides : {std::vector<std::string>{}, {"run.dir=\"a\\n\\\"b\\\\ # c: 'd' \\x01 ü\"", "optim.lr=.1"}}) {
    auto first = bound(kFull, overrides);
    auto second = bound(first.config.dump_yaml());
    EXPECT_EQ(first.config.text(), second.config.text()) << first.config.dump_yaml();
    EXPECT_EQ(first.options.dir, second.options.dir);
    EXPECT_EQ(second.options.rules.size(), 2u);
  }
  std::string yaml = bound("\nseed: 3\n", {"optim.lr=0.5"}).config.dump_yaml();
  EXPECT_TRUE(contains(yaml, "seed: 3  # a.yaml:2\n")) << yaml;
  EXPECT_TRUE(contains(yaml, "\n  lr: 0.5  # override 1 (optim.lr=0.5)\n")) << yaml;
  EXPECT_TRUE(contains(yaml, "\n  nesterov: false  # default\n")) << yaml;
}

// A rule that sets a key to its default is another than one that leaves it to earlier rules; where it makes no
// difference to a model, what a resumed run compares is the same as before rules told the two apart.
TEST(Config, TheResolvedFileKeepsWhatARuleLeavesToEarlierOnes) {
  const auto rules_of = [](const std::string& yaml) {
    OptimOptions o;
    Config config(ConfigTree::parse(yaml, "a.yaml"));
    config.bind("optim", fields(o));
    return std::pair(o.rules, config);
  };
  const auto [rules, config] =
      rules_of("optim: {rules: [{pattern: x, lr_scale: 2}, {pattern: y, lr_scale: 1}, {pattern: z, frozen: false}]}");
  for (const auto& r : {rules, rules_of(config.dump_yaml()).first}) {
    ASSERT_EQ(r.size(), 3u);
    EXPECT_EQ(std::tuple(r[0].lr_scale.given, r[1].lr_scale.given, r[2].lr_scale.given), std::tuple(true, true, false));
    EXPECT_EQ(std::tuple(r[0].frozen.given, r[1].frozen.given, r[2].frozen.given), std::tuple(false, false, true));
    EXPECT_EQ(r[1].lr_scale.value, 1);
  }
  EXPECT_TRUE(contains(config.json(), R"({"pattern":"y","decay":"default","lr_scale":1.0})")) << config.json();
  EXPECT_TRUE(contains(config.math_text(), "{pattern: x, decay: default, lr_scale: 2, frozen: false}, {pattern: \"y\""))
      << config.math_text();
  EXPECT_TRUE(contains(config.math_text("", "optim.rules"), "{pattern: x, decay: default, lr_scale: 2}, "));
  EXPECT_EQ(rules_of(config.dump_yaml()).second.math_text(), config.math_text());
}

// Also where several share a struct of options.
TEST(Config, EachOptimizerTakesItsOwnKeysAlone) {
  const std::map<std::string, std::string> own{{"sgd", "momentum nesterov "},
                                               {"adam", "beta1 beta2 epsilon "},
                                               {"adamw", "beta1 beta2 epsilon "},
                                               {"adamw8bit", "beta1 beta2 epsilon "},
                                               {"lamb", "beta1 beta2 epsilon "},
                                               {"lion", "beta1 beta2 "},
                                               {"muon", "adamw_for beta1 beta2 epsilon momentum "}};
  ASSERT_EQ(builtin().optimizers.size(), own.size());
  for (const auto& [name, keys] : own) {
    std::string taken;
    for (const char* text :
         {"adamw_for=[x]", "beta1=0.5", "beta2=0.5", "epsilon=0.5", "momentum=0.5", "nesterov=false", "amsgrad=true"}) {
      const std::string key = std::string(text).substr(0, std::string_view(text).find('='));
      try {
        load_settings(
            builtin(),
            ConfigTree::parse("data: {path: x.h5}", "a.yaml", {str("optim.name=", name), str("optim.", text)}), 1);
        taken += key + " ";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ExitCode::kConfig);
        EXPECT_TRUE(contains(e.what(), str("override 2 (optim.", text, "): "))) << e.what();
        EXPECT_TRUE(contains(e.what(), key == "amsgrad" ? "unknown key optim.amsgrad" : "only with optim.name: "))
            << e.what();
      }
    }
    EXPECT_EQ(taken, keys) << name;
  }
}

TEST(Config, KeysThatOnlyAnotherChoiceTakesAreFound) {
  const auto found = [](const std::vector<std::string>& overrides) {
    std::string out;
    const ConfigTree tree =
        ConfigTree::parse("optim: {name: sgd, beta1: 0.5, momentum: 0.1}\nmodel: {hidden: [3]}", "a.yaml", overrides);
    for (const auto& k : keys_without_effect(builtin(), tree)) {
      EXPECT_EQ(k.place, "a.yaml:" + std::string(k.key == "model.hidden" ? "2" : "1"));
      EXPECT_TRUE(contains(k.why, k.key == "model.hidden" ? "model.name: " : "optim.name: ")) << k.why;
      out += k.key + " ";
    }
    return out;
  };
  EXPECT_EQ(found({"model.name=mlp"}), "optim.beta1 ");
  EXPECT_EQ(found({"model.name=mlp", "optim.name=adam"}), "optim.momentum ");
  EXPECT_EQ(found({"model.name=gpt"}), "optim.beta1 model.hidden ");
  EXPECT_EQ(found({"model.name=mlp", "optim.name=muon"}), "");
  EXPECT_EQ(found({"model.name=mlp", "optim.beat1=1", "~optim.beta1"}), "");  // unknown ones are for Config::finish()
}

TEST(RunLength, AnEpochEndsWithAStepOfWhatIsLeft) {
  EXPECT_EQ(steps_of_samples(10, 10, 4), 3);
  EXPECT_EQ(steps_of_samples(20, 10, 4), 6);
  EXPECT_EQ(steps_of_samples(24, 10, 4), 7);
  EXPECT_EQ(steps_of_samples(25, 10, 4), 8);
  EXPECT_EQ(steps_of_samples(1, 10, 40), 1);
}

TEST(RunLength, WaitsForTheDataAndHasNoEffectOnTheMathematics) {
  const auto load = [](const std::vector<std::string>& overrides) {
    return load_settings(builtin(),
                         ConfigTree::parse("data: {path: x.h5}\nschedule: {name: cosine}", "a.yaml", overrides), 1);
  };
  const auto epochs = load({"train.epochs=2.5"});
  EXPECT_TRUE(needs_data_for_steps(*epochs));
  EXPECT_EQ(epochs->train.steps, 0);
  EXPECT_EQ(length_text(*epochs), "2.5 epochs");
  const auto again = load_settings(builtin(), ConfigTree::parse(epochs->config.dump_yaml(), "again.yaml"), 1);
  EXPECT_EQ(again->config.text(), epochs->config.text());
  EXPECT_FALSE(needs_data_for_steps(*load({})));
  const auto differences = diff(load({})->config.math_text(), load({"train.tokens=100"})->config.math_text());
  ASSERT_EQ(differences.size(), 1u);  // which the data resolves
  EXPECT_EQ(differences[0].key, "schedule.steps");
  for (const std::vector<std::string>& two :
       {std::vector<std::string>{"train.epochs=1", "train.steps=2"}, {"train.epochs=1", "train.tokens=2"}}) {
    const auto [code, message] = error_of([&] { load(two); });
    EXPECT_EQ(code, ExitCode::kConfig);
    for (const std::string& one : two) EXPECT_TRUE(contains(message, "(" + one + ")")) << message;
  }
}

TEST(Config, AnOddFileNameDoesNotSpoilTheResolvedFile) {
  for (const char* name : {"a\nseed: 9\n.yaml", "\xff.yaml", "ä.yaml"}) {
    Options o;
    Config config(ConfigTree::parse("seed: 3", name));
    config.bind("", top_fields(o));
    EXPECT_EQ(bound(config.dump_yaml()).options.seed, 3) << config.dump_yaml();
  }
}

TEST(Config, DifferenceNamesKeysAndBothValues) {
  auto a = bound("seed: 4\n").config.text();
  auto b = bound("seed: 5\noptim: {lr: 1}\n").config.text() + "extra.key: 3\n";
  auto d = diff(a, b);
  ASSERT_EQ(d.size(), 3u);
  EXPECT_EQ(d[0].key, "extra.key");
  EXPECT_EQ(d[0].a, "(absent)");
  EXPECT_EQ(d[1].key, "optim.lr");
  EXPECT_EQ(d[1].a, "3e-04");
  EXPECT_EQ(d[1].b, "1");
  EXPECT_EQ(d[2].key, "seed");
  EXPECT_TRUE(diff(a, a).empty());
}

TEST(Config, KeysAreDocumentedWithTheirDefaults) {
  auto b = bound("seed: 4\noptim: {rules: [{pattern: x}]}\n");
  Convnet convnet;
  b.config.know("model", fields(convnet), "has an effect only with model.name: convnet");
  std::string table = keys_table(b.config.keys());
  EXPECT_TRUE(contains(table, "KEY ")) << table;
  EXPECT_TRUE(contains(table, "seed                   integer")) << table;
  EXPECT_TRUE(contains(table, "per step  0 to 10       learning rate")) << table;
  EXPECT_TRUE(contains(table, "optim.rules[].decay")) << table;
  EXPECT_TRUE(contains(table, "exact | fast")) << table;
  EXPECT_TRUE(contains(table, "of a kernel; has an effect only with model.name: convnet")) << table;
  EXPECT_EQ(b.config.keys()[0].standard, "1");  // the default, not the value
  EXPECT_EQ(b.options.rules.size(), 1u);        // documenting adds nothing
  std::string json = keys_json(b.config.keys());
  EXPECT_TRUE(contains(json, "{\"key\":\"seed\",\"type\":\"integer\",\"default\":\"1\"")) << json;
}

TEST(Config, KeysFitATerminal) {
  auto b = bound("");
  for (const int width : {40, 80, 120}) {
    const std::string text = keys_paragraphs(b.config.keys(), width);
    size_t longest = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
    EXPECT_LE(longest, static_cast<size_t>(width)) << text;
  }
  const std::string text = keys_paragraphs(b.config.keys(), 80);
  EXPECT_EQ(text.find("seed: integer, >= 0; default: 1\n"), 0u) << text;
  EXPECT_TRUE(contains(text, "\noptim.lr: number, per step, 0 to 10; default: ")) << text;
  EXPECT_TRUE(contains(text, "\n    learning rate")) << text;
}

TEST(Config, BindingAKeyTwiceIsAMistakeOfTheProgram) {
  Options o;
  Config config;
  config.bind("", top_fields(o));
  EXPECT_EQ(error_of([&] { config.bind("", top_fields(o)); }).first, ExitCode::kInternal);
}

TEST(DidYouMean, CountsSlips) {
  EXPECT_EQ(edit_distance("abc", "abc", 3), 0);
  EXPECT_EQ(edit_distance("abc", "acb", 3), 1);  // swapped
  EXPECT_EQ(edit_distance("abc", "ab", 3), 1);
  EXPECT_EQ(edit_distance("abc", "xyz", 2), 3);  // counts to limit + 1
  EXPECT_EQ(nearest("trian", {"train", "eval"}), "train");
  EXPECT_EQ(nearest("q", {"a", "b"}), "");
  const std::vector<std::string> keys{"batch.global", "optim.lr", "optim.name", "optim.weight_decay", "data.context"};
  EXPECT_EQ(nearest("optim.learning_rate", keys), "optim.lr");
  EXPECT_EQ(nearest("learning_rate", keys), "optim.lr");
  EXPECT_EQ(nearest("train.batch_size", keys), "batch.global");
  EXPECT_EQ(nearest("batch_size", {"size"}), "") << "only where the key is there";
  EXPECT_EQ(nearest("checkpoint.keep", {"checkpoint.every", "checkpoint.keep_every", "checkpoint.keep_last"}),
            "checkpoint.keep_last");
  const std::vector<std::string> more{"batch.micro", "precision.compute", "train.epochs", "schedule.warmup"};
  EXPECT_EQ(did_you_mean("warmup_ratio", more),
            "; did you mean schedule.warmup (it counts steps: the ratio times train.steps)?");
  EXPECT_EQ(did_you_mean("bf16", more), "; did you mean precision.compute (write precision.compute: bf16)?");
  EXPECT_EQ(nearest("per_device_train_batch_size", more), "batch.micro");
  EXPECT_EQ(nearest("num_train_epochs", more), "train.epochs");
  EXPECT_TRUE(contains(did_you_mean("world_size", more), "; the number of ranks is no key: give --ranks N"));
}

// A key that is renamed here is renamed in the table, too.
TEST(DidYouMean, NamesOfOtherProgramsLeadToKeysThatThereAre) {
  std::set<std::string, std::less<>> ours;
  for (const ConfigKey& k : all_keys(builtin())) {
    ours.insert(k.key);
    if (const size_t dot = k.key.find('.'); dot != k.key.npos) ours.insert(k.key.substr(0, dot));
  }
  std::map<std::string_view, bool> found;
  for (const OtherName& other : other_names()) {
    found[other.name] |= other.ours.empty() || ours.contains(other.ours);
    EXPECT_TRUE(!other.ours.empty() || !other.note.empty()) << other.name;
    EXPECT_FALSE(ours.contains(other.name)) << other.name << " is a key of its own";
  }
  EXPECT_GE(found.size(), 150u);
  for (const auto& [name, is_there] : found) EXPECT_TRUE(is_there) << name;
}

TEST(Keys, OfSeveralChoicesHaveTheDefaultsOfEach) {
  std::map<std::string, std::map<std::string, std::string>> defaults;  // of a key, by condition
  for (const ConfigKey& k : all_keys(builtin())) defaults[k.key][k.condition] = k.standard;
  EXPECT_EQ(defaults["optim.momentum"]["has an effect only with optim.name: muon"], "0.95");
  EXPECT_EQ(defaults["optim.momentum"]["has an effect only with optim.name: sgd"], "0");
  std::set<std::string> eps, hidden;
  for (auto& [condition, standard] : defaults["model.norm_eps"]) eps.insert(standard);
  EXPECT_EQ(eps.size(), 3u) << "1e-12, 1e-5 and 1e-6";
  for (auto& [condition, standard] : defaults["model.hidden"]) hidden.insert(standard);
  EXPECT_TRUE(hidden.contains("[128]") && hidden.contains("0")) << "of mlp and of llama";
}

TEST(Choices, OfOneNameAreRefused) {
  App app = builtin();
  app.optimizers.push_back(app.optimizers.front());
  const auto [code, message] = error_of([&] { all_keys(app); });
  EXPECT_EQ(code, ExitCode::kInternal);
  EXPECT_NE(message.find("two choices of optim.name are called 'adamw'"), message.npos) << message;
}

}  // namespace
}  // namespace lockstep::config_test
