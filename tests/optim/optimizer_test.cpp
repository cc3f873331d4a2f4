// The optimizers against their definitions in fp64; slices, skipped steps, resumption and threads change no bit; rules
// by name.
#include "core/tensor/raw_ops.h"
#include "optim/builtin.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/base/partition.h"
#include "core/base/philox.h"
#include "core/device/context.h"
#include "optim/loss_scale.h"
#include "tests/support/files.h"

namespace lockstep {
namespace {

using test::expect_error;

std::vector<float> numbers(int64_t n, uint64_t seed, float scale = 1) {
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i)
    v.push_back(scale * (2 * uniform_of(philox(seed, static_cast<uint64_t>(i), 0).v[0]) - 1));
  return v;
}

Slot slot(const std::string& name, int64_t n, bool decay, double lr_scale = 1) {
  Slot s;
  s.name = name;
  s.global_shape = {n};
  s.master = Tensor::of(numbers(n, 1), {n});
  s.gradient = Tensor::zeros({n});
  s.decay = decay;
  s.lr_scale = lr_scale;
  return s;
}

Slot matrix(const std::string& name, const Shape& shape) {
  Slot s = slot(name, shape.numel(), true);
  s.global_shape = shape;
  return s;
}

void set_gradient(Slot& s, uint64_t step) {
  const auto g = numbers(s.gradient.numel(), 100 + step, 2);
  memcpy(s.gradient.mutable_values<float>(), g.data(), g.size() * sizeof(float));
}

using Maker = std::function<std::unique_ptr<Optimizer>(const std::vector<Slot>&)>;

// One step of one element, as the textbook has it.
using Reference = std::function<void(int64_t step, double lr, double g, double decay, double& p, double& a, double& b)>;

void expect_follows(const Maker& make, double weight_decay, const Reference& reference) {
  std::vector<Slot> slots{slot("w", 1003, true), slot("bias", 67, false), slot("slow", 5, true, 0.1)};
  auto optimizer = make(slots);
  std::vector<std::vector<double>> p, a, b;
  for (const Slot& s : slots) {
    p.push_back(s.master.to_vector());
    a.emplace_back(p.back().size(), 0.0);
    b.emplace_back(p.back().size(), 0.0);
  }
  for (int64_t step = 0; step < 25; ++step) {
    const double lr = 0.02 / static_cast<double>(1 + step), grad_scale = step % 3 ? 0.5 : 1;
    for (Slot& s : slots) set_gradient(s, static_cast<uint64_t>(step));
    optimizer->step(slots, {.lr = lr, .grad_scale = grad_scale});
    for (size_t k = 0; k < slots.size(); ++k) {
      const auto g = slots[k].gradient.to_vector();
      for (size_t i = 0; i < g.size(); ++i)
        reference(step + 1, lr * slots[k].lr_scale, g[i] * grad_scale, slots[k].decay ? weight_decay : 0, p[k][i],
                  a[k][i], b[k][i]);
      const auto got = slots[k].master.to_vector();
      for (size_t i = 0; i < g.size(); ++i)
        ASSERT_NEAR(got[i], p[k][i], 2e-6) << slots[k].name << "[" << i << "] after step " << step;
    }
  }
  EXPECT_EQ(optimizer->updates(), 25);
}

Reference sgd_reference(double momentum, bool nesterov) {
  return [=](int64_t, double lr, double g, double decay, double& p, double& velocity, double&) {
    g += decay * p;
    velocity = momentum * velocity + g;
    p -= lr * (nesterov ? g + momentum * velocity : velocity);
  };
}

TEST(Sgd, FollowsItsDefinition) {
  for (double momentum : {0.0, 0.9})
    for (bool nesterov : {false, true})
      for (double decay : {0.0, 0.05})
        expect_follows(
            [&](const std::vector<Slot>& s) {
              return make_sgd({.momentum = momentum, .weight_decay = decay, .nesterov = nesterov}, s);
            },
            decay, sgd_reference(momentum, nesterov));
}

TEST(AdamW, FollowsItsDefinition) {
  for (double decay : {0.0, 0.1})
    for (double beta2 : {0.95, 0.999})
      expect_follows(
          [&](const std::vector<Slot>& s) {
            return make_adamw({.beta1 = 0.9, .beta2 = beta2, .epsilon = 1e-8, .weight_decay = decay}, s);
          },
          decay,
          [=](int64_t step, double lr, double g, double rate, double& p, double& m, double& v) {
            p *= 1 - lr * rate;  // decoupled: not through the moments
            m = 0.9 * m + 0.1 * g;
            v = beta2 * v + (1 - beta2) * g * g;
            const double mh = m / (1 - std::pow(0.9, step)), vh = v / (1 - std::pow(beta2, step));
            p -= lr * mh / (std::sqrt(vh) + 1e-8);
          });
}

TEST(Adam, FollowsItsDefinition) {
  for (double decay : {0.0, 0.1})
    expect_follows(
        [&](const std::vector<Slot>& s) {
          return make_adam({.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = decay}, s);
        },
        decay,
        [=](int64_t step, double lr, double g, double rate, double& p, double& m, double& v) {
          g += rate * p;  // through the moments
          m = 0.9 * m + 0.1 * g;
          v = 0.99 * v + 0.01 * g * g;
          const double mh = m / (1 - std::pow(0.9, step)), vh = v / (1 - std::pow(0.99, step));
          p -= lr * mh / (std::sqrt(vh) + 1e-6);
        });
}

TEST(Lion, FollowsItsDefinition) {
  for (double decay : {0.0, 0.1})
    expect_follows(
        [&](const std::vector<Slot>& s) { return make_lion({.beta1 = 0.9, .beta2 = 0.99, .weight_decay = decay}, s); },
        decay,
        [=](int64_t, double lr, double g, double rate, double& p, double& m, double&) {
          const double direction = 0.9 * m + 0.1 * g;
          p = p * (1 - lr * rate) - lr * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
          m = 0.99 * m + 0.01 * g;
        });
}

// One step of a whole parameter [n], as the textbook has it.
using WholeReference = std::function<void(int64_t step, double lr, const std::vector<double>& g, bool decays,
                                          std::vector<double>& p, std::vector<double>& a, std::vector<double>& b)>;

void expect_follows_whole(const Maker& make, std::vector<Slot> slots, double tolerance,
                          const WholeReference& reference) {
  auto optimizer = make(slots);
  std::vector<std::vector<double>> p, a, b;
  for (const Slot& s : slots) {
    p.push_back(s.master.to_vector());
    a.emplace_back(p.back().size(), 0.0);
    b.emplace_back(p.back().size(), 0.0);
  }
  for (int64_t step = 0; step < 12; ++step) {
    const double lr = 0.02 / static_cast<double>(1 + step), grad_scale = step % 3 ? 0.5 : 1;
    for (Slot& s : slots) set_gradient(s, static_cast<uint64_t>(step));
    optimizer->step(slots, {.lr = lr, .grad_scale = grad_scale});
    for (size_t k = 0; k < slots.size(); ++k) {
      auto g = slots[k].gradient.to_vector();
      for (double& value : g) value *= grad_scale;
      reference(step + 1, lr * slots[k].lr_scale, g, slots[k].decay, p[k], a[k], b[k]);
      const auto got = slots[k].master.to_vector();
      for (size_t i = 0; i < g.size(); ++i)
        ASSERT_NEAR(got[i], p[k][i], tolerance) << slots[k].name << "[" << i << "] after step " << step;
    }
  }
}

TEST(Lamb, FollowsItsDefinition) {
  for (double decay : {0.0, 0.1}) {
    std::vector<Slot> slots{slot("w", 1003, true), slot("bias", 67, false), slot("slow", 5, true, 0.1),
                            slot("zero", 70, true)};
    std::fill_n(slots[3].master.mutable_values<float>(), 70, 0.0f);
    expect_follows_whole(
        [&](const std::vector<Slot>& s) {
          return make_lamb({.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = decay}, s);
        },
        slots, 4e-6,
        [=](int64_t step, double lr, const std::vector<double>& g, bool decays, std::vector<double>& p,
            std::vector<double>& m, std::vector<double>& v) {
          std::vector<double> direction;
          double p_squares = 0, direction_squares = 0;
          for (size_t i = 0; i < g.size(); ++i) {
            m[i] = 0.9 * m[i] + 0.1 * g[i];
            v[i] = 0.99 * v[i] + 0.01 * g[i] * g[i];
            const double mh = m[i] / (1 - std::pow(0.9, step)), vh = v[i] / (1 - std::pow(0.99, step));
            direction.push_back(mh / (std::sqrt(vh) + 1e-6) + (decays ? decay * p[i] : 0));
            p_squares += p[i] * p[i];
            direction_squares += direction[i] * direction[i];
          }
          const double ratio = decays && p_squares > 0 ? std::sqrt(p_squares / direction_squares) : 1;
          for (size_t i = 0; i < g.size(); ++i) p[i] -= lr * ratio * direction[i];
        });
  }
}

// [rows, columns] in place, by the iteration's definition.
void orthogonalize(std::vector<double>& x, int64_t rows, int64_t columns) {
  const auto product = [](const std::vector<double>& a, const std::vector<double>& b, int64_t m, int64_t k, int64_t n,
                          bool transposed) {  // of b
    std::vector<double> c(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t l = 0; l < k; ++l)
          c[static_cast<size_t>(i * n + j)] +=
              a[static_cast<size_t>(i * k + l)] * b[static_cast<size_t>(transposed ? j * k + l : l * n + j)];
    return c;
  };
  double squares = 0;
  for (double v : x) squares += v * v;
  for (double& v : x) v /= std::sqrt(squares) + 1e-7;
  for (int i = 0; i < 5; ++i) {
    const auto a = product(x, x, rows, columns, rows, true), aa = product(a, a, rows, rows, rows, false);
    const auto ax = product(a, x, rows, rows, columns, false), aax = product(aa, x, rows, rows, columns, false);
    for (size_t k = 0; k < x.size(); ++k) x[k] = 3.4445 * x[k] - 4.7750 * ax[k] + 2.0315 * aax[k];
  }
}

TEST(Muon, FollowsItsDefinition) {
  for (double decay : {0.0, 0.1})
    for (const Shape& shape : {Shape{12, 20}, {33, 7}, {6, 3, 3, 2}, {1, 9}})
      expect_follows_whole([&](const std::vector<Slot>& s) { return make_muon({.adamw = {.weight_decay = decay}}, s); },
                           {matrix("w", shape)}, 2e-5,
                           [&](int64_t, double lr, const std::vector<double>& g, bool decays, std::vector<double>& p,
                               std::vector<double>& m, std::vector<double>&) {
                             std::vector<double> x;
                             for (size_t i = 0; i < g.size(); ++i) {
                               m[i] = 0.95 * m[i] + 0.05 * g[i];
                               x.push_back(0.05 * g[i] + 0.95 * m[i]);
                             }
                             const int64_t rows = shape[0], columns = shape.numel() / rows;
                             orthogonalize(x, rows, columns);
                             const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
                             for (size_t i = 0; i < g.size(); ++i)
                               p[i] = p[i] * (1 - lr * (decays ? decay : 0)) - lr * scale * x[i];
                           });
}

TEST(Muon, LeavesVectorsAndNamedMatricesToAdamW) {
  std::vector<Slot> slots{slot("bias", 67, false), matrix("wte.weight", {9, 7}), matrix("up.weight", {9, 7})};
  std::vector<Slot> other{slot("bias", 67, false), matrix("wte.weight", {9, 7}), matrix("up.weight", {9, 7})};
  auto muon = make_muon({.adamw = {.weight_decay = 0.1}}, slots);
  auto adamw = make_adamw({.weight_decay = 0.1}, other);
  for (uint64_t step = 0; step < 3; ++step) {
    for (auto* all : {&slots, &other})
      for (Slot& s : *all) set_gradient(s, step);
    muon->step(slots, {.lr = 0.01});
    adamw->step(other, {.lr = 0.01});
  }
  for (size_t i : {0, 1}) EXPECT_EQ(slots[i].master.to_vector(), other[i].master.to_vector()) << slots[i].name;
  EXPECT_NE(slots[2].master.to_vector(), other[2].master.to_vector());
  EXPECT_EQ(muon->state(slots).size(), 5u) << "a matrix has one moment";
}

// 1 - beta must not come from a rounded beta: that loses up to eps / (1 - beta) of each moment, and of each update.
TEST(AdamW, BetasNearOneLoseNoAccuracy) {
  struct Betas {
    double first, second;
  };
  for (const auto [beta1, beta2] : {Betas{0.9, 0.999}, {0.9, 0.99999}, {0.999, 0.999}})
    for (const int64_t steps : {5, 400}) {
      SCOPED_TRACE(cat("beta1 ", beta1, ", beta2 ", beta2, ", ", steps, " steps"));
      constexpr int64_t kCount = 257;
      std::vector<Slot> slots{slot("w", kCount, false)};
      std::fill_n(slots[0].master.mutable_values<float>(), kCount, 0.0f);  // else p itself would round
      auto optimizer = make_adamw({.beta1 = beta1, .beta2 = beta2}, slots);
      std::vector<double> p(kCount), m(kCount), v(kCount);
      for (int64_t step = 1; step <= steps; ++step) {
        set_gradient(slots[0], static_cast<uint64_t>(step));
        const auto g = slots[0].gradient.to_vector();
        optimizer->step(slots, {.lr = 1e-3});
        for (size_t i = 0; i < g.size(); ++i) {
          m[i] = beta1 * m[i] + (1 - beta1) * g[i];
          v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
          const double mh = m[i] / (1 - std::pow(beta1, step)), vh = v[i] / (1 - std::pow(beta2, step));
          p[i] -= 1e-3 * mh / (std::sqrt(vh) + 1e-8);
        }
      }
      const auto got = slots[0].master.to_vector();
      double difference = 0, length = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        difference += (got[i] - p[i]) * (got[i] - p[i]);
        length += p[i] * p[i];
      }
      EXPECT_LT(std::sqrt(difference / length), 1e-6);
    }
}

const Maker kMakers[] = {
    [](const std::vector<Slot>& s) { return make_sgd({.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}, s); },
    [](const std::vector<Slot>& s) { return make_adamw({.weight_decay = 0.01}, s); },
    [](const std::vector<Slot>& s) { return make_adam({.weight_decay = 0.01}, s); },
    [](const std::vector<Slot>& s) { return make_lion({.weight_decay = 0.01}, s); },
    [](const std::vector<Slot>& s) { return make_lamb({.weight_decay = 0.01}, s); },
    [](const std::vector<Slot>& s) { return make_muon({.adamw = {.weight_decay = 0.01}}, s); }};

std::vector<std::vector<double>> everything(const Optimizer& o, const std::vector<Slot>& slots) {
  std::vector<std::vector<double>> out;
  for (const Slot& s : slots) out.push_back(s.master.to_vector());
  for (const StateEntry& e : o.state(slots)) out.push_back(e.data.to_vector());
  return out;
}

TEST(EachOptimizer, SkippedStepLeavesEveryBit) {
  for (const Maker& make : kMakers) {
    std::vector<Slot> slots{matrix("w", {17, 59})};
    auto o = make(slots);
    set_gradient(slots[0], 1);
    o->step(slots, {.lr = 0.1});
    const auto before = everything(*o, slots);
    for (float bad : {NAN, INFINITY, -INFINITY, 1e38f}) {
      float* g = slots[0].gradient.mutable_values<float>();
      for (int64_t i = 0; i < 1003; i += 3) g[i] = bad;
      o->step(slots, {.lr = 0.1, .grad_scale = 1e9, .skip = true});
    }
    EXPECT_EQ(everything(*o, slots), before);
    EXPECT_EQ(o->updates(), 1) << "a skipped step is no update: bias correction stays";
    // And the next real step is as if nothing had been.
    std::vector<Slot> plain{matrix("w", {17, 59})};
    auto p = make(plain);
    for (uint64_t step : {1, 2}) set_gradient(plain[0], step), p->step(plain, {.lr = 0.1});
    set_gradient(slots[0], 2);
    o->step(slots, {.lr = 0.1});
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
        known->step(a, {.lr = 0.1, .grad_scale = 0.5, .skip = skips(step)});
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
          o->step(with, {.lr = 0.1, .skip = step == 1});
          p->step(without, {.lr = 0.1, .skip = step == 1});
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

// Whoever owns a slice computes the bits that the owner of the whole would.
TEST(EachOptimizer, SlicesAndThreadsGiveTheBitsOfTheWhole) {
  for (const Maker& make : kMakers) {
    const int64_t n = 40000;
    auto run = [&](const std::vector<Range>& cuts, int threads) {
      Stream stream({}, Stream::Mode::kInline, threads);
      WithStream with(stream);
      Slot whole = matrix("w", {250, 160});
      std::vector<Slot> slots;
      const Slices group(n);
      for (const Range& r : cuts) {
        slots.push_back(whole);
        slots.back().group = &group;
        slots.back().offset = r.begin;
        slots.back().master = whole.master.slice(0, r.begin, r.end);
        slots.back().gradient = whole.gradient.slice(0, r.begin, r.end);
      }
      auto o = make(slots);
      for (uint64_t step = 0; step < 4; ++step) set_gradient(whole, step), o->step(slots, {.lr = 0.1});
      return whole.master.to_vector();
    };
    const auto expected = run({{0, n}}, 1);
    EXPECT_EQ(run({{0, 64}, {64, 12800}, {12800, n}}, 1), expected);
    for (int threads : {2, 3, 5}) EXPECT_EQ(run({{0, n}}, threads), expected);
  }
}

TEST(EachOptimizer, ContinuesFromItsState) {
  for (const Maker& make : kMakers) {
    std::vector<Slot> a{matrix("w", {12, 25}), slot("b", 7, false)}, b{matrix("w", {12, 25}), slot("b", 7, false)};
    auto straight = make(a), first = make(b);
    for (uint64_t step = 0; step < 6; ++step) {
      for (Slot& s : a) set_gradient(s, step);
      straight->step(a, {.lr = 0.1});
    }
    for (uint64_t step = 0; step < 3; ++step) {
      for (Slot& s : b) set_gradient(s, step);
      first->step(b, {.lr = 0.1});
    }
    auto second = make(b);
    const auto from = first->state(b), to = second->state(b);
    ASSERT_EQ(from.size(), to.size());
    ASSERT_FALSE(from.empty());
    for (size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(from[i].name, to[i].name);
      memcpy(to[i].data.mutable_values<float>(), from[i].data.values<float>(),
             static_cast<size_t>(from[i].data.bytes()));
    }
    second->set_updates(first->updates());
    for (uint64_t step = 3; step < 6; ++step) {
      for (Slot& s : b) set_gradient(s, step);
      second->step(b, {.lr = 0.1});
    }
    EXPECT_EQ(everything(*second, b), everything(*straight, a));
  }
}

TEST(EachOptimizer, RefusesOtherSlotsThanItsOwn) {
  for (const Maker& make : kMakers) {
    auto o = make({slot("w", 8, true)});
    EXPECT_THROW(o->step({slot("w", 8, true), slot("v", 8, true)}, {}), Error);
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
      const UpdateScalars scalars{.lr = 0.01, .grad_scale = 0.5, .skip = step == 1};
      one->step(here, scalars);
      other->step(there, scalars);
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
}  // namespace lockstep
