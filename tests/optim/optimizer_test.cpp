// Every optimizer: slices, skipped steps, resumption and threads change no bit; rules by name. What each computes:
// definitions_test.
#include "core/tensor/raw_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "core/base/name_pattern.h"
#include "core/base/partition.h"
#include "core/device/context.h"
#include "optim/copies_beside.h"
#include "optim/loss_scale.h"
#include "tests/optim/slots.h"
#include "tests/optim/tensor_adamw.h"
#include "tests/support/files.h"

namespace lockstep::optimizer_test {
namespace {

using test::expect_error;
using testing::Maker;
using testing::matrix;
using testing::set_gradient;
using testing::slot;
using testing::update_once;

const Maker kMakers[] = {
    [](const std::vector<Slot>& s) { return make_sgd({.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}, s); },
    [](const std::vector<Slot>& s) { return make_adamw({.weight_decay = 0.01}, s); },
    [](const std::vector<Slot>& s) { return make_adam({.weight_decay = 0.01}, s); },
    [](const std::vector<Slot>& s) { return make_lion({.weight_decay = 0.01}, s); },
    [](const std::vector<Slot>& s) { return make_lamb({.weight_decay = 0.01}, s); },
    [](const std::vector<Slot>& s) { return make_adamw8bit({.weight_decay = 0.01}, s); },
    [](const std::vector<Slot>& s) { return make_muon({.adamw = {.weight_decay = 0.01}}, s); },
    [](const std::vector<Slot>& s) { return testing::make_tensor_adamw({.weight_decay = 0.01}, s); }};

TEST(EachOptimizer, OfTheProgramIsTestedHere) { EXPECT_EQ(std::size(kMakers), builtin_optimizers().size() + 1); }

std::vector<std::vector<double>> everything(const Optimizer& o, const std::vector<Slot>& slots) {
  std::vector<std::vector<double>> out;
  for (const Slot& s : slots) out.push_back(s.master.to_vector());
  for (const StateEntry& e : o.state(slots)) out.push_back(e.values(0, e.data.numel()).to_vector());
  return out;
}

TEST(EachOptimizer, SkippedStepLeavesEveryBit) {
  for (const Maker& make : kMakers) {
    std::vector<Slot> slots{matrix("w", {17, 59})};
    auto o = make(slots);
    set_gradient(slots[0], 1);
    update_once(*o, slots, {.lr = 0.1});
    const auto before = everything(*o, slots);
    for (float bad : {NAN, INFINITY, -INFINITY, 1e38f}) {
      float* g = slots[0].gradient.mutable_values<float>();
      for (int64_t i = 0; i < 1003; i += 3) g[i] = bad;
      update_once(*o, slots, {.lr = 0.1, .grad_scale = 1e9, .skip = true});
    }
    EXPECT_EQ(everything(*o, slots), before);
    EXPECT_EQ(o->updates(), 1) << "a skipped step is no update: bias correction stays";
    // And the next real step is as if nothing had been.
    std::vector<Slot> plain{matrix("w", {17, 59})};
    auto p = make(plain);
    for (uint64_t step : {1, 2}) set_gradient(plain[0], step), update_once(*p, plain, {.lr = 0.1});
    set_gradient(slots[0], 2);
    update_once(*o, slots, {.lr = 0.1});
    EXPECT_EQ(everything(*o, slots), everything(*p, plain));
  }
}

// The device knows what became of an update, the host not yet: the next one's bias correction is right all the same.
TEST(EachOptimizer, AnUpdateMayBeSetOutBeforeTheOneBeforeIsSettled) {
  for (const Maker& make : kMakers)
    for (int skipped : {-1, 0, 1, 2, 3}) {
      std::vector<Slot> a{matrix("w", {12, 25})}, b{matrix("w", {12, 25})};
      auto known = make(a), ahead = make(b);
      const auto skips = [&](int step) { return step == skipped || (skipped == 3 && step == 4); };
      for (int step = 0; step < 6; ++step) {
        for (auto* slots : {&a, &b}) set_gradient((*slots)[0], static_cast<uint64_t>(step));
        update_once(*known, a, {.lr = 0.1, .grad_scale = 0.5, .skip = skips(step)});
        ahead->prepare(0.1);
        ahead->update(b, Tensor::of<float>({0.5f, skips(step) ? 1.0f : 0.0f}, {2}));
        if (step > 0) ahead->settle(skips(step - 1));
      }
      EXPECT_EQ(everything(*known, a), everything(*ahead, b)) << "skipped " << skipped;
      ahead->settle(skips(5));
      EXPECT_EQ(known->updates(), ahead->updates());
      EXPECT_THROW(ahead->settle(false), Error) << "nothing is left to settle";
      ahead->prepare(0.1);
      ahead->prepare(0.1);
      EXPECT_THROW(ahead->prepare(0.1), Error) << "two are not settled";
    }
}

TEST(EachOptimizer, WritesTheMastersOnceMoreWhereASlotAsksForIt) {
  for (const Maker& make : kMakers)
    for (DType type : {DType::kBFloat16, DType::kFloat16, DType::kFloat32})
      for (bool in_host_memory : {false, true}) {
        const int64_t n = 3001;
        std::vector<Slot> with{slot("w", n, true)}, without{slot("w", n, true)};
        with[0].copy = Tensor::zeros({n}, type);
        with[0].in_host_memory = in_host_memory;
        auto o = make(with), p = make(without);
        for (int step = 0; step < 3; ++step) {
          set_gradient(with[0], static_cast<uint64_t>(step)), set_gradient(without[0], static_cast<uint64_t>(step));
          update_once(*o, with, {.lr = 0.1, .skip = step == 1});
          update_once(*p, without, {.lr = 0.1, .skip = step == 1});
          EXPECT_EQ(with[0].copy.to_vector(), raw::cast(with[0].master, type).to_vector())
              << to_text(type) << ", step " << step;
        }
        EXPECT_EQ(everything(*o, with), everything(*p, without));
      }
}

// Slices of one parameter, all in this process.
class Slices final : public SlotGroup {
 public:
  explicit Slices(int64_t n) : total_(round_up(n, kStateChunk)) {}
  int64_t total() const override { return total_; }
  void gather_whole(const Tensor&, int64_t) const override {}

 private:
  int64_t total_;
};

// Parts of a state, cut anywhere: each is whole in its second place, or known not to be.
TEST(EachOptimizer, WritesTheStateWhereASecondPlaceIsGiven) {
  constexpr size_t kElementwise = 4;  // the first ones: all of their state is written so
  for (size_t m = 0; m < std::size(kMakers); ++m)
    for (int threads : {1, 3}) {
      Stream stream(Device{}, Stream::Mode::kInline, threads);
      const WithStream with(stream);
      std::vector<Slot> slots{matrix("w", {300, 701}), slot("b", 1003, false)},
          plain{matrix("w", {300, 701}), slot("b", 1003, false)};
      auto o = kMakers[m](slots), p = kMakers[m](plain);
      CopiesBeside copies;
      o->set_copies(&copies);
      std::vector<StateEntry> state;
      for (const Slot& s : slots) state.push_back({s.name, s.region, s.offset, s.master, {}});
      for (const StateEntry& e : o->state(slots)) state.push_back(e);
      std::vector<StateEntry> share = cut_for_rank(state, 1, 3);
      std::vector<std::vector<float>> places;
      for (const StateEntry& e : share) places.emplace_back(static_cast<size_t>(e.data.numel()), -7.0f);
      for (uint64_t step : {1, 2}) {
        std::vector<CopiesBeside::Copy> all;
        for (size_t i = 0; i < share.size(); ++i)
          if (!share[i].scales)
            all.push_back({static_cast<const float*>(share[i].data.read()), share[i].data.numel(), places[i].data()});
        copies.begin(all);
        for (size_t i = 0; i < slots.size(); ++i) set_gradient(slots[i], step), set_gradient(plain[i], step);
        update_once(*o, slots, {.lr = 0.1});
        update_once(*p, plain, {.lr = 0.1});
        EXPECT_EQ(everything(*o, slots), everything(*p, plain));
        for (size_t i = 0; i < share.size(); ++i) {
          const StateEntry& e = share[i];
          if (e.scales) continue;  // 8-bit moments have no second place
          const bool has = copies.has(static_cast<const float*>(e.data.read()), e.data.numel());
          EXPECT_TRUE(has || m >= kElementwise) << e.name;
          if (!has) continue;
          EXPECT_EQ(places[i], e.data.to_vector<float>()) << e.name << " after step " << step;
        }
      }
      copies.begin({{static_cast<const float*>(share[0].data.read()), share[0].data.numel(), places[0].data()}});
      EXPECT_FALSE(copies.has(static_cast<const float*>(share[0].data.read()), share[0].data.numel())) << "not yet";
    }
}

// An observer changes no bit, and is told of each element of the state once before and once after its update.
TEST(EachOptimizer, TellsItsObserverOfAllState) {
  struct Seen final : UpdateObserver {
    void before_update(const std::vector<Part>& parts) override {
      for (const Part& p : parts) EXPECT_EQ(std::exchange(before[p.slice], p.begin + p.now.data.numel()), p.begin);
    }
    void after_update(const std::vector<Part>& parts) override {
      for (const Part& p : parts) {
        EXPECT_EQ(std::exchange(after[p.slice], p.begin + p.now.data.numel()), p.begin);
        EXPECT_EQ(before[p.slice], after[p.slice]);
      }
    }
    std::map<const void*, int64_t> before, after;
  };
  for (const auto& make : kMakers)
    for (bool in_host_memory : {false, true}) {
      std::vector<Slot> slots{matrix("w", {300, 1001}), slot("b", 1003, false)},
          plain{matrix("w", {300, 1001}), slot("b", 1003, false)};
      for (Slot& s : slots) s.in_host_memory = in_host_memory;
      auto o = make(slots), p = make(plain);
      for (uint64_t step : {1, 2}) {
        Seen seen;
        o->set_observer(&seen);
        for (size_t i = 0; i < slots.size(); ++i) set_gradient(slots[i], step), set_gradient(plain[i], step);
        update_once(*o, slots, {.lr = 0.1});
        update_once(*p, plain, {.lr = 0.1});
        EXPECT_EQ(everything(*o, slots), everything(*p, plain));
        std::map<const void*, int64_t> all;
        for (const Slot& s : slots) all[s.master.read()] = s.master.numel();
        for (const StateEntry& e : o->state(slots)) all[e.data.read()] = e.data.numel();
        EXPECT_EQ(seen.after, all);
      }
    }
}

TEST(CopiesBeside, SaysWhereAValueWasWrittenTwice) {
  std::vector<float> state(100, 1.0f), place(60);
  CopiesBeside copies;
  Stream stream(Device{}, Stream::Mode::kInline, 1);
  const auto written = [&](int64_t at, int64_t n) {
    stream.enqueue([&](Parallel& p) { copies.written(p, state.data() + at, n); });
  };
  copies.begin({{state.data() + 20, 60, place.data()}});
  EXPECT_EQ(copies.until_next(state.data(), 100), 20);
  EXPECT_EQ(copies.until_next(state.data() + 30, 70), 0);
  EXPECT_EQ(copies.until_next(state.data() + 80, 20), 20);
  written(0, 50);
  EXPECT_FALSE(copies.has(state.data() + 20, 60));
  written(50, 50);
  EXPECT_TRUE(copies.has(state.data() + 20, 60));
  EXPECT_EQ(place, std::vector<float>(60, 1.0f));
  written(30, 1);
  EXPECT_FALSE(copies.has(state.data() + 20, 60));
}

TEST(EachOptimizer, OfOnePassUpdatesAGroupAsOneTask) {
  for (size_t kind = 0; kind < 4; ++kind) {  // sgd, adamw, adam, lion
    const auto tasks = [&](bool together) {
      const Slices one(300), another(300), third(300);
      std::vector<Slot> slots{slot("a", 64, true), slot("b", 128, true), slot("c", 100, false)};
      slots[0].group = &one, slots[1].group = together ? &one : &another, slots[2].group = together ? &one : &third;
      const auto o = kMakers[kind](slots);
      start_trace();
      update_once(*o, slots, {.lr = 0.1});
      stop_trace();
      return take_trace().spans.size();
    };
    EXPECT_EQ(tasks(false) - tasks(true), 2u) << "optimizer " << kind;
  }
}

// Whoever owns a slice computes the bits that the owner of the whole would.
TEST(EachOptimizer, SlicesAndThreadsGiveTheBitsOfTheWhole) {
  for (const Maker& make : kMakers) {
    const int64_t n = 40000;
    auto run = [&](const std::vector<IndexRange>& cuts, int threads) {
      Stream stream({}, Stream::Mode::kInline, threads);
      WithStream with(stream);
      Slot whole = matrix("w", {250, 160});
      std::vector<Slot> slots;
      const Slices group(n);
      for (const IndexRange& r : cuts) {
        slots.push_back(whole);
        slots.back().group = &group;
        slots.back().offset = r.begin;
        slots.back().master = whole.master.slice(0, r.begin, r.end);
        slots.back().gradient = whole.gradient.slice(0, r.begin, r.end);
      }
      auto o = make(slots);
      for (uint64_t step = 0; step < 4; ++step) set_gradient(whole, step), update_once(*o, slots, {.lr = 0.1});
      return whole.master.to_vector();
    };
    const auto expected = run({{0, n}}, 1);
    EXPECT_EQ(run({{0, 64}, {64, 12800}, {12800, n}}, 1), expected);
    for (int threads : {2, 3, 5}) EXPECT_EQ(run({{0, n}}, threads), expected);
  }
}

// A layer that holds columns of a matrix: where the update is elementwise, the bits are those of the whole there.
TEST(EachOptimizer, BoxesAreUpdatedAsTheWholeIsOrRefused) {
  const Shape shape{30, 67};
  const Region box{shape, {0, 20}, {30, 33}};
  const auto of_box = [&](const Tensor& whole) {
    std::vector<float> v;
    for (int64_t i = 0; i < box.numel(); ++i) v.push_back(whole.values<float>()[box.element(i)]);
    return Tensor::of(v, {box.numel()});
  };
  int updated = 0;
  for (const Maker& make : kMakers) {
    std::vector<Slot> whole{matrix("w", shape)}, part = whole;
    part[0].region = box;
    part[0].master = of_box(whole[0].master);
    std::unique_ptr<Optimizer> o;
    try {
      o = make(part);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kInternal);
      EXPECT_NE(std::string(e.what()).find("[0:30, 20:53]"), std::string::npos) << e.what();
      continue;
    }
    ++updated;
    auto straight = make(whole);
    for (uint64_t step = 0; step < 4; ++step) {
      set_gradient(whole[0], step);
      part[0].gradient = of_box(whole[0].gradient);
      update_once(*straight, whole, {.lr = 0.1});
      update_once(*o, part, {.lr = 0.1});
    }
    EXPECT_EQ(part[0].master.to_vector<float>(), of_box(whole[0].master).to_vector<float>());
    const auto all = straight->state(whole), mine = o->state(part);
    ASSERT_EQ(mine.size(), all.size());
    for (size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(mine[i].name, all[i].name);
      EXPECT_EQ(mine[i].region, box);
      EXPECT_EQ(mine[i].data.to_vector<float>(), of_box(all[i].data).to_vector<float>()) << mine[i].name;
    }
  }
  EXPECT_GE(updated, 3);
  EXPECT_LT(updated, static_cast<int>(std::size(kMakers))) << "lamb, muon and 8 bits need whole parameters";
}

TEST(EachOptimizer, ContinuesFromItsState) {
  for (const Maker& make : kMakers) {
    std::vector<Slot> a{matrix("w", {12, 25}), slot("b", 7, false)}, b{matrix("w", {12, 25}), slot("b", 7, false)};
    auto straight = make(a), first = make(b);
    for (uint64_t step = 0; step < 6; ++step) {
      for (Slot& s : a) set_gradient(s, step);
      update_once(*straight, a, {.lr = 0.1});
    }
    for (uint64_t step = 0; step < 3; ++step) {
      for (Slot& s : b) set_gradient(s, step);
      update_once(*first, b, {.lr = 0.1});
    }
    auto second = make(b);
    const auto from = first->state(b), to = second->state(b);
    ASSERT_EQ(from.size(), to.size());
    ASSERT_FALSE(from.empty());
    for (size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(from[i].name, to[i].name);
      to[i].set_values(0, from[i].values(0, from[i].data.numel()));
    }
    second->set_updates(first->updates());
    for (uint64_t step = 3; step < 6; ++step) {
      for (Slot& s : b) set_gradient(s, step);
      update_once(*second, b, {.lr = 0.1});
    }
    EXPECT_EQ(everything(*second, b), everything(*straight, a));
  }
}

TEST(EachOptimizer, RefusesOtherSlotsThanItsOwn) {
  for (const Maker& make : kMakers) {
    auto o = make({slot("w", 8, true)});
    EXPECT_THROW(update_once(*o, {slot("w", 8, true), slot("v", 8, true)}, {}), Error);
  }
}

TEST(EachOptimizer, IsMadeByItsWord) {
  OptimOptions o;
  const std::vector<Slot> slots{slot("w", 8, true)};
  const auto moments = [&](const char* name) {
    std::vector<std::string> names;
    for (const StateEntry& e : make_choice(builtin_optimizers(), name)->build(o, slots)->state(slots))
      names.push_back(e.name);
    return names;
  };
  EXPECT_EQ(moments("sgd"), (std::vector<std::string>{"sgd.momentum/w"}));
  EXPECT_EQ(moments("adamw"), (std::vector<std::string>{"adamw.m/w", "adamw.v/w"}));
  EXPECT_EQ(moments("adamw8bit"), (std::vector<std::string>{"adamw8bit.m/w", "adamw8bit.v/w"}));
  EXPECT_EQ(moments("muon"), (std::vector<std::string>{"adamw.m/w", "adamw.v/w"})) << "a vector";
  EXPECT_EQ(moments("lamb"), (std::vector<std::string>{"lamb.m/w", "lamb.v/w"}));
}

TEST(Patterns, MatchAsWritten) {
  struct Case {
    const char *pattern, *name;
    bool yes;
  };
  for (const Case& c :
       {Case{"*", "", true}, Case{"*", "a.b", true}, Case{"", "", true}, Case{"", "a", false}, Case{"a.b", "a.b", true},
        Case{"a.b", "a.bc", false}, Case{"*.bias", "blocks.0.up.bias", true}, Case{"*.bias", "bias", false},
        Case{"*bias", "bias", true}, Case{"blocks.0.*", "blocks.0.up.weight", true},
        Case{"blocks.0.*", "blocks.01.up", false}, Case{"*ab*ab", "abab", true}, Case{"*ab*ab", "ab", false},
        Case{"a*b*c", "axxbyybzzc", true}, Case{"a*b*c", "axxbyybzz", false}, Case{"**", "x", true},
        Case{"a?", "ab", false}, Case{"*.ln*.*", "blocks.3.ln1.weight", true}})
    EXPECT_EQ(matches(c.pattern, c.name), c.yes) << c.pattern << " on " << c.name;
}

TEST(Rules, ChangeDecayAndRateAndLaterOnesWin) {
  const std::vector<std::string> names{"ln.bias", "up.bias", "up.weight", "wte.weight"};
  std::vector<Slot> slots;
  for (const auto& n : names) slots.push_back(slot(n, 4, n.find("weight") != std::string::npos));
  OptimOptions o;
  apply_rules(o, slots, names);
  EXPECT_EQ(slots[1].decay, false) << "vectors do not decay unless asked";
  EXPECT_EQ(slots[2].decay, true);
  o.rules = {{.pattern = "*.bias", .decay = "on", .lr_scale = 2},
             {.pattern = "ln.*", .decay = "off", .lr_scale = 0.5},
             {.pattern = "wte.*", .decay = "off"}};
  apply_rules(o, slots, names);
  EXPECT_FALSE(slots[0].decay);
  EXPECT_EQ(slots[0].lr_scale, 0.5);
  EXPECT_TRUE(slots[1].decay);
  EXPECT_EQ(slots[1].lr_scale, 2);
  EXPECT_TRUE(slots[2].decay);
  EXPECT_EQ(slots[2].lr_scale, 1);
  EXPECT_FALSE(slots[3].decay);
  std::vector<Slot> again{slot("ln.bias", 4, false)};
  o.rules.clear();
  o.decay_vectors = true;
  apply_rules(o, again, names);
  EXPECT_TRUE(again[0].decay);
}

TEST(Rules, ALaterOneLeavesWhatItDoesNotSet) {
  const std::vector<std::string> names{"a.weight", "b.weight", "c.weight", "d.bias"};
  const auto applied = [&](const std::vector<OptimRule>& rules) {
    OptimOptions o;
    o.rules = rules;
    std::vector<Slot> slots;
    for (const auto& n : names) slots.push_back(slot(n, 4, n.ends_with("weight")));
    apply_rules(o, slots, names);
    std::string out;
    for (const Slot& s : slots) out += str(s.lr_scale, s.decay ? "+" : "", is_frozen(o, s.name) ? "f " : " ");
    return out + (rules_leave_others(o, names) ? "left" : "");
  };
  EXPECT_EQ(applied({{.pattern = "*.weight", .lr_scale = 0.5}, {.pattern = "a.*", .decay = "off"}}),
            "0.5 0.5+ 0.5+ 1 left");
  EXPECT_EQ(applied({{.pattern = "*.weight", .lr_scale = 0.5}, {.pattern = "a.*", .lr_scale = 1}}), "1+ 0.5+ 0.5+ 1 ");
  EXPECT_EQ(applied({{.pattern = "*", .decay = "on", .lr_scale = 2},
                     {.pattern = "b.*", .frozen = true},
                     {.pattern = "*.weight", .decay = "off"},
                     {.pattern = "*c*", .lr_scale = 3},
                     {.pattern = "d.*", .decay = "default", .frozen = false}}),
            "2 2f 3 2+ left");
  EXPECT_EQ(applied({{.pattern = "*", .frozen = true}, {.pattern = "a.*", .lr_scale = 0.1}}), "0.1+f 1+f 1+f 1f left");
  EXPECT_EQ(applied({{.pattern = "a.*", .frozen = true}, {.pattern = "b.*", .lr_scale = 2}}), "1+f 2+ 1+ 1 ");
}

TEST(Rules, FreezeByName) {
  OptimOptions o;
  o.rules = {{.pattern = "wte.*", .frozen = true},
             {.pattern = "blocks.*", .frozen = true},
             {.pattern = "blocks.1.*", .frozen = false}};
  EXPECT_TRUE(is_frozen(o, "wte.weight"));
  EXPECT_TRUE(is_frozen(o, "blocks.0.up.bias"));
  EXPECT_FALSE(is_frozen(o, "blocks.1.up.bias"));
  EXPECT_FALSE(is_frozen(o, "ln.weight"));
}

TEST(Rules, ThatMatchNothingAreErrors) {
  std::vector<Slot> slots{slot("up.weight", 4, true)};
  OptimOptions o;
  o.rules = {{.pattern = "up.*"}, {.pattern = "down.*"}};
  expect_error(ExitCode::kConfig, {"optim.rules", "'down.*'", "matches no parameter", "up.weight"}, [&] {
    apply_rules(o, slots, {"up.weight", "frozen.weight"});
  });
  o.rules = {{.pattern = "frozen.*", .frozen = true}};
  apply_rules(o, slots, {"up.weight", "frozen.weight"});  // matches a frozen parameter, which has no slot
}

// A slot in host memory goes through the device in several chunks, the last one uneven: no bit changes, and a skipped
// step leaves everything.
TEST(HostMemory, ChunksChangeNoBit) {
  const int64_t n = (int64_t(5) << 19) + 37;
  for (const Maker& make : kMakers) {
    std::vector<Slot> here{slot("w", n, true)}, there{slot("w", n, true)};
    there[0].in_host_memory = true;
    auto one = make(here), other = make(there);
    for (int64_t step = 0; step < 3; ++step) {
      for (auto* slots : {&here, &there}) set_gradient((*slots)[0], static_cast<uint64_t>(step));
      const testing::UpdateScalars scalars{.lr = 0.01, .grad_scale = 0.5, .skip = step == 1};
      update_once(*one, here, scalars);
      update_once(*other, there, scalars);
      const auto a = one->state(here), b = other->state(there);
      EXPECT_EQ(to_hex(digest_of(a)), to_hex(digest_of(b))) << step;
      EXPECT_EQ(here[0].master.to_vector<float>(), there[0].master.to_vector<float>()) << step;
    }
  }
}

TEST(LossScale, HalvesOnOverflowAndGrowsBack) {
  LossScale fixed, scale = LossScale::dynamic();
  fixed.update(false);
  EXPECT_EQ(fixed.value(), 1);
  EXPECT_EQ(scale.value(), LossScale::kFirst);
  scale.update(false);
  EXPECT_EQ(scale.value(), LossScale::kFirst / 2);
  for (int64_t i = 0; i < LossScale::kGrowAfter - 1; ++i) scale.update(true);
  EXPECT_EQ(scale.value(), LossScale::kFirst / 2);
  LossScale restored = LossScale::dynamic();
  restored.restore(scale.value(), scale.good_steps());
  for (LossScale* s : {&scale, &restored}) {
    s->update(true);
    EXPECT_EQ(s->value(), LossScale::kFirst);
  }
  for (int i = 0; i < 100; ++i) scale.update(false);
  EXPECT_EQ(scale.value(), LossScale::kLeast);
  restored.restore(scale.value(), scale.good_steps());
  EXPECT_EQ(restored.value(), LossScale::kLeast) << "a scale that fell all the way is a scale, too";
}

}  // namespace
}  // namespace lockstep::optimizer_test
