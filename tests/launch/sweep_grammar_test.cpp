#include "launch/config/sweep_grammar.h"

#include <gtest/gtest.h>

#include "tests/launch/scratch.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

Words choices_of(const std::string& key) { return key == "optim.name" ? Words{"adamw", "adam", "sgd"} : Words{}; }
SweepKey read(const std::string& argument) { return parse_sweep_argument(argument, choices_of); }
Words values(const std::string& argument) {
  const SweepKey k = read(argument);
  EXPECT_TRUE(k.swept) << argument;
  return k.values;
}
void expect_refused(const std::string& argument, const std::string& part) {
  const auto [code, message] = error_of([&] { read(argument); });
  EXPECT_EQ(code, ExitCode::kUsage) << argument;
  EXPECT_TRUE(contains(message, argument)) << message;
  EXPECT_TRUE(contains(message, part)) << message << "\nlacks: " << part;
}

TEST(SweepGrammar, ListsAreSeparatedByCommas) {
  EXPECT_EQ(values("optim.lr=0.1,1e-3"), (Words{"0.1", "1e-3"}));
  EXPECT_EQ(values("optim.lr= 0.1 , 1e-3 "), (Words{"0.1", "1e-3"}));
  EXPECT_EQ(read("optim.lr=0.1,1").key, "optim.lr");
  EXPECT_EQ(values("choice=a,b"), (Words{"a", "b"}));
}

TEST(SweepGrammar, OneValueIsAPlainOverride) {
  for (const char* text : {"a=1", "a=", "a=[1,2]", "a='x,y'", "a=\"x,y\"", "a={b: 1, c: 2}", "a=don't", "a=b=c",
                           "a=runs/x(1).h5", "a=f(x)", "a=x)"}) {
    const SweepKey k = read(text);
    EXPECT_FALSE(k.swept) << text;
    EXPECT_EQ(k.values, Words{std::string(text).substr(2)});
  }
}

TEST(SweepGrammar, CommasInBracketsAndQuotesDoNotSeparate) {
  EXPECT_EQ(values("a=[1,2],[3,[4,5]]"), (Words{"[1,2]", "[3,[4,5]]"}));
  EXPECT_EQ(values("a='x,y',\"z, ]\",w"), (Words{"'x,y'", "\"z, ]\"", "w"}));
  EXPECT_EQ(values("a={b: [1, 2], c: 'd,e'},{b: 3}"), (Words{"{b: [1, 2], c: 'd,e'}", "{b: 3}"}));
  EXPECT_EQ(values("a=\"x\\\",y\",z"), (Words{"\"x\\\",y\"", "z"}));
  EXPECT_EQ(values("a='it''s, x',y"), (Words{"'it''s, x'", "y"}));
  EXPECT_EQ(values("a=don't,won't"), (Words{"don't", "won't"}));
  EXPECT_EQ(values("a=['[',']'],b"), (Words{"['[',']']", "b"}));
}

TEST(SweepGrammar, Choice) {
  EXPECT_EQ(values("a=choice(x, [1,2] ,'y,z')"), (Words{"x", "[1,2]", "'y,z'"}));
  EXPECT_EQ(values("a=choice(x)"), Words{"x"});
}

TEST(SweepGrammar, RangeEndsBeforeItsStop) {
  EXPECT_EQ(values("a=range(1,4)"), (Words{"1", "2", "3"}));
  EXPECT_EQ(values("a=range(3)"), (Words{"0", "1", "2"}));
  EXPECT_EQ(values("a=range(1, 10, 4)"), (Words{"1", "5", "9"}));
  EXPECT_EQ(values("a=range(3,0,-1)"), (Words{"3", "2", "1"}));
  EXPECT_EQ(values("a=range(-2,1)"), (Words{"-2", "-1", "0"}));
}

TEST(SweepGrammar, RangeOfFractionsIsNotSpoiltByRounding) {
  EXPECT_EQ(values("a=range(0.1,0.5,0.1)"), (Words{"0.1", "0.2", "0.3", "0.4"}));
  EXPECT_EQ(values("a=range(0,1,0.1)").size(), 10u);
  EXPECT_EQ(values("a=range(1e-5,3e-5,1e-5)"), (Words{"1e-05", "2e-05"}));
  EXPECT_EQ(values("a=range(1,2.5)"), (Words{"1", "2"}));
}

TEST(SweepGrammar, GlobMatchesTheChoicesOfTheKey) {
  EXPECT_EQ(values("optim.name=glob(adam*)"), (Words{"adamw", "adam"}));
  EXPECT_EQ(values("optim.name=glob('*')"), (Words{"adamw", "adam", "sgd"}));
  expect_refused("optim.name=glob(x*)", "matches no choice of optim.name: adamw, adam, sgd");
  expect_refused("optim.lr=glob(*)", "not a key with a list of choices");
}

TEST(SweepGrammar, BadArgumentsSayWhatIsWrong) {
  expect_refused("optim.lr", "write key.path=value");
  expect_refused("=1,2", "write key.path=value");
  expect_refused("a=1,,2", "empty");
  expect_refused("a=1,", "empty");
  expect_refused("a=choice()", "empty");
  expect_refused("a=[1,2", "']' is missing");
  expect_refused("a=1],2", "closes no bracket");
  expect_refused("a=[1,2},3", "closes no bracket");
  expect_refused("a='x,y", "not closed");
  expect_refused("a=range()", "empty");
  expect_refused("a=range(1,2,3,4)", "write range(");
  expect_refused("a=range(1,x)", "'x' is not a number");
  expect_refused("a=range(1,inf)", "not a number");
  expect_refused("a=range(4,1)", "has no values");
  expect_refused("a=range(1,1)", "has no values");
  expect_refused("a=range(1,4,0)", "the step is 0");
  expect_refused("a=range(0,1e9)", "more than 10000 values");
  expect_refused("a=interval(0,1)", "needs a sampler");
  expect_refused("a=shuffle(range(3))", "not supported");
  expect_refused("a=choice(1,2),3", "stands alone");
}

TEST(SweepGrid, FirstKeyChangesSlowest) {
  const auto g = SweepGrid::parse({"a=1,2", "b=x", "c=range(3)"}, choices_of);
  EXPECT_EQ(g.points(), 6);
  EXPECT_EQ(g.swept_keys(), (Words{"a", "c"}));
  EXPECT_EQ(g.overrides(0), (Words{"a=1", "b=x", "c=0"}));
  EXPECT_EQ(g.overrides(2), (Words{"a=1", "b=x", "c=2"}));
  EXPECT_EQ(g.overrides(3), (Words{"a=2", "b=x", "c=0"}));
  EXPECT_EQ(g.values(5), (Words{"2", "2"}));
  EXPECT_EQ(g.text(4), "a=2 c=1");
  EXPECT_EQ(SweepGrid::parse({"b=x"}, choices_of).points(), 1);
}

TEST(SweepGrid, ATildeIsHandedOn) {
  const auto g = SweepGrid::parse({"~b.c", "a=1,2"}, choices_of);
  EXPECT_EQ(g.swept_keys(), Words{"a"});
  EXPECT_EQ(g.overrides(1), (Words{"~b.c", "a=2"}));
}

TEST(SweepGrid, RefusesKeysThatAreGivenTwiceAndTooManyPoints) {
  EXPECT_EQ(error_of([] { SweepGrid::parse({"a=1,2", "a=3"}, choices_of); }).first, ExitCode::kUsage);
  EXPECT_EQ(error_of([] { SweepGrid::parse({"a=3", "a=range(2)"}, choices_of); }).first, ExitCode::kUsage);
  EXPECT_EQ(SweepGrid::parse({"a=3", "a=4"}, choices_of).overrides(0), (Words{"a=3", "a=4"}));
  EXPECT_EQ(SweepGrid::parse({"a=range(100)", "b=range(100)"}, choices_of).points(), 10000);
  const auto [code, message] = error_of([] { SweepGrid::parse({"a=range(100)", "b=range(101)"}, choices_of); });
  EXPECT_EQ(code, ExitCode::kUsage);
  EXPECT_TRUE(contains(message, "more than 10000 points")) << message;
}

}  // namespace
}  // namespace lockstep
