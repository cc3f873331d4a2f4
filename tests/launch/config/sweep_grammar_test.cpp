#include "launch/config/sweep_grammar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "launch/config/sweep_draws.h"
#include "tests/launch/scratch.h"

namespace lockstep::sweep_grammar_test {
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
  expect_refused("a=interval(1,0)", "the interval is empty");
  expect_refused("a=interval(1)", "write interval(");
  expect_refused("a=interval(0,x)", "'x' is not a number");
  expect_refused("a=tag(log, interval(0,1))", "must lie above 0");
  expect_refused("a=tag(x, interval(1,2))", "tag(log, interval(low,high)) alone");
  expect_refused("a=tag(log, choice(1,2))", "tag(log, interval(low,high)) alone");
  expect_refused("a=interval(1,2),3", "stands alone");
  expect_refused("a=shuffle(range(3))", "not supported");
  expect_refused("a=choice(1,2),3", "stands alone");
}

TEST(SweepGrammar, IntervalsAreDrawnFrom) {
  EXPECT_EQ(read("a=interval(0, 0.5)").interval, (SweepInterval{0, 0.5, false}));
  EXPECT_EQ(read("a=tag(log, interval(1e-4,1e-1))").interval, (SweepInterval{1e-4, 1e-1, true}));
  const auto [code, message] = error_of([] { SweepGrid::parse({"a=1,2", "b=interval(0,1)"}, choices_of); });
  EXPECT_EQ(code, ExitCode::kUsage);
  EXPECT_TRUE(contains(message, "give --random N")) << message;
  EXPECT_EQ(error_of([] { SweepGrid::parse({"a=1"}, choices_of, SweepDraws{3, 1}); }).first, ExitCode::kUsage);
}

// The digits are those of every machine, since nothing but IEEE arithmetic makes them.
TEST(SweepDraws, SameSeedSameDigits) {
  const Words arguments{"lr=tag(log, interval(1e-4,1e-1))", "w=interval(-1,1)", "n=choice(a,b,c)", "fixed=7"};
  const auto g = SweepGrid::parse(arguments, choices_of, SweepDraws{3, 5});
  EXPECT_EQ(g.points(), 3);
  EXPECT_EQ(g.text(0), "lr=0.08199062751749756 w=0.007214939834793821 n=b");
  EXPECT_EQ(g.text(1), "lr=0.0021664358381171087 w=-0.6055008405079787 n=b");
  EXPECT_EQ(g.overrides(2), (Words{"lr=0.00012615205438160258", "w=0.47095899545432895", "n=b", "fixed=7"}));
}

TEST(SweepDraws, PointsDifferWhereTheValuesAreEnough) {
  const auto texts = [](const Words& arguments, int64_t points, uint64_t seed) {
    const auto grid = SweepGrid::parse(arguments, choices_of, SweepDraws{points, seed});
    EXPECT_EQ(grid.points(), points);
    std::set<std::string> out;
    for (int64_t p = 0; p < points; ++p) out.insert(grid.text(p));
    return std::ssize(out);
  };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(texts({"a=1,2,3", "b=x,y"}, 6, seed), 6);
    EXPECT_EQ(texts({"a=1,2,3", "b=x,y", "c=7"}, 4, seed), 4);
  }
  EXPECT_EQ(texts({"a=range(100)", "b=range(100)"}, 10'000, 1), 10'000);
  EXPECT_LE(texts({"a=1,2,2", "b=x"}, 5, 1), 2);
  const auto few = SweepGrid::parse({"a=1,2,3", "b=x,y"}, choices_of, SweepDraws{3, 5}),
             all = SweepGrid::parse({"a=1,2,3", "b=x,y"}, choices_of, SweepDraws{6, 5});
  for (int64_t p = 0; p < 3; ++p) EXPECT_EQ(few.text(p), all.text(p));
}

TEST(SweepDraws, NeitherMorePointsNorOtherKeysChangeWhatIsDrawn) {
  const auto few = SweepGrid::parse({"lr=tag(log, interval(1e-4,1e-1))"}, choices_of, SweepDraws{3, 5});
  const auto many = SweepGrid::parse({"w=1,2", "lr=tag(log, interval(1e-4,1e-1))"}, choices_of, SweepDraws{9, 5});
  const auto other = SweepGrid::parse({"lr=tag(log, interval(1e-4,1e-1))"}, choices_of, SweepDraws{3, 6});
  for (int64_t p = 0; p < 3; ++p) {
    EXPECT_EQ(few.values(p)[0], many.values(p)[1]);
    EXPECT_NE(few.values(p)[0], other.values(p)[0]);
  }
}

TEST(SweepDraws, FillTheIntervalEvenly) {
  constexpr int64_t kPoints = 10'000;
  const auto g = SweepGrid::parse({"lr=tag(log, interval(1e-4,1e-1))", "w=interval(2,4)", "n=a,b,c,d"}, choices_of,
                                  SweepDraws{kPoints, 1});
  int64_t low_lr = 0, low_w = 0;
  std::map<std::string, int64_t> counts;
  for (int64_t p = 0; p < kPoints; ++p) {
    const Words v = g.values(p);
    const double lr = std::stod(v[0]), w = std::stod(v[1]);
    EXPECT_TRUE(lr >= 1e-4 && lr <= 1e-1 && w >= 2 && w <= 4) << v[0] << " " << v[1];
    low_lr += lr < 1e-3;
    low_w += w < 2.5;
    ++counts[v[2]];
  }
  const double third = kPoints / 3.0, quarter = kPoints / 4.0;  // to five standard deviations
  EXPECT_NEAR(static_cast<double>(low_lr), third, 240);
  EXPECT_NEAR(static_cast<double>(low_w), quarter, 220);
  EXPECT_EQ(counts.size(), 4u);
  for (auto& [_, n] : counts) EXPECT_NEAR(static_cast<double>(n), quarter, 220);
}

TEST(SweepDraws, LogarithmsAreThoseOfTheLibraryToSixteenDigits) {
  const SweepKey key{"a", {}, true, SweepInterval{1e-7, 3e5, true}};
  for (double part : {0.0, 0.1, 0.25, 0.5, 0.7, 0.999}) {
    const double wanted = std::exp(std::log(1e-7) + part * (std::log(3e5) - std::log(1e-7)));
    EXPECT_NEAR(std::stod(value_at(key, part)) / wanted, 1, 1e-14) << part;
  }
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
}  // namespace lockstep::sweep_grammar_test
