// The optimizers against their definitions in fp64, and codes of 8 bits against theirs.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/partition.h"
#include "core/device/allocator.h"
#include "core/state/state.h"
#include "tests/optim/slots.h"

namespace lockstep::definitions_test {
namespace {

using testing::Maker;
using testing::matrix;
using testing::numbers;
using testing::set_gradient;
using testing::slot;
using testing::update_once;

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
    update_once(*optimizer, slots, {.lr = lr, .grad_scale = grad_scale});
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
    update_once(*optimizer, slots, {.lr = lr, .grad_scale = grad_scale});
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

TEST(Muon, LeavesVectorsTablesAndNamedMatricesToAdamW) {
  std::vector<Slot> slots{slot("bias", 67, false), matrix("head.weight", {9, 7}), matrix("rows.weight", {9, 7}),
                          matrix("up.weight", {9, 7})};
  slots[2].table = true;
  std::vector<Slot> other = slots;
  for (Slot& s : other) s = slot(s.name, s.master.numel(), s.decay);
  auto muon = make_muon({.adamw = {.weight_decay = 0.1}}, slots);
  auto adamw = make_adamw({.weight_decay = 0.1}, other);
  for (uint64_t step = 0; step < 3; ++step) {
    for (auto* all : {&slots, &other})
      for (Slot& s : *all) set_gradient(s, step);
    update_once(*muon, slots, {.lr = 0.01});
    update_once(*adamw, other, {.lr = 0.01});
  }
  for (size_t i : {0, 1, 2}) EXPECT_EQ(slots[i].master.to_vector(), other[i].master.to_vector()) << slots[i].name;
  EXPECT_NE(slots[3].master.to_vector(), other[3].master.to_vector());
  EXPECT_EQ(muon->state(slots).size(), 7u) << "a matrix has one moment";
}

// The codes' error is at most 1/16 of a value, or half a step of what is smallest beside the block's largest value.
TEST(AdamW8Bit, FollowsItsDefinitionUpToItsCodes) {
  std::vector<Slot> slots{slot("w", 1003, true)};
  auto optimizer = make_adamw8bit({.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.1}, slots);
  std::vector<double> p = slots[0].master.to_vector(), m(p.size()), v(p.size());
  for (int64_t step = 1; step <= 20; ++step) {
    set_gradient(slots[0], static_cast<uint64_t>(step));
    const auto g = slots[0].gradient.to_vector();
    update_once(*optimizer, slots, {.lr = 0.01, .grad_scale = 0.5});
    std::vector<std::vector<double>> kept;
    for (const StateEntry& e : optimizer->state(slots)) kept.push_back(e.values(0, e.data.numel()).to_vector());
    for (size_t block = 0; block < p.size(); block += 64) {
      double largest_m = 0, largest_v = 0;
      const size_t end = std::min(block + 64, p.size());
      for (size_t i = block; i < end; ++i) {
        m[i] = 0.9 * m[i] + 0.1 * 0.5 * g[i];
        v[i] = 0.99 * v[i] + 0.01 * 0.25 * g[i] * g[i];
        const double mh = m[i] / (1 - std::pow(0.9, step)), vh = v[i] / (1 - std::pow(0.99, step));
        p[i] = p[i] * (1 - 0.01 * 0.1) - 0.01 * mh / (std::sqrt(vh) + 1e-6);
        ASSERT_NEAR(slots[0].master.to_vector()[i], p[i], 2e-6) << i << " after step " << step;
        largest_m = std::max(largest_m, std::abs(m[i])), largest_v = std::max(largest_v, v[i]);
      }
      for (size_t i = block; i < end; ++i) {
        ASSERT_NEAR(kept[0][i], m[i], std::abs(m[i]) / 15.9 + largest_m * 0x1p-17) << i << " after step " << step;
        ASSERT_NEAR(kept[1][i], v[i], v[i] / 15.9 + largest_v * 0x1p-33) << i << " after step " << step;
        ASSERT_EQ(kept[1][i] > 0, v[i] > 0);
        m[i] = kept[0][i], v[i] = kept[1][i];
      }
    }
  }
}

TEST(AdamW8Bit, KeepsItsMomentsInAQuarterOfTheMemory) {
  constexpr int64_t n = 1 << 16;
  const std::vector<Slot> slots{slot("w", n, true)};
  const auto bytes_of = [&](const Maker& make) {
    const auto moments = [] { return allocator_stats().by_use[static_cast<size_t>(MemoryUse::kMoments)]; };
    const int64_t before = moments();
    const auto optimizer = make(slots);
    return moments() - before;
  };
  const int64_t fp32 = bytes_of([](const auto&s) { return make_adamw({}, s); }),
                codes = bytes_of([](const auto&s) { return make_adamw8bit({}, s); });
  EXPECT_EQ(fp32 - codes, 2 * (4 * n - n - 4 * n / 64));
}

// Codes, scales and values of blocks: what was decoded is encoded to the same values, however small or large.
TEST(BlockCodes, KeepWhatTheyDecodedTo) {
  for (float scale : {1.0f, 3e-20f, 1e-27f, 1e-28f, 7e30f, 0.0f})
    for (bool has_signs : {false, true}) {
      constexpr int64_t n = 1000;
      std::vector<float> x = numbers(n, 3, 1);
      for (int64_t i = 0; i < n; ++i) {
        float& value = x[static_cast<size_t>(i)];
        if (!has_signs) value = std::abs(value);
        value *= scale * std::pow(10.0f, -static_cast<float>(i % 12));
      }
      StateEntry e{"m/w", Shape{n}, 0, Tensor::zeros({n}, DType::kUInt8), Tensor::zeros({ceil_div(n, kStateChunk)})};
      e.set_values(0, Tensor::of(x, {n}));
      const auto once = e.values(0, n).to_vector<float>();
      e.set_values(0, e.values(0, n));
      EXPECT_EQ(e.values(0, n).to_vector<float>(), once) << scale;
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(i), block = at / 64 * 64;
        float largest = 0;
        for (size_t k = block; k < std::min(block + 64, x.size()); ++k) largest = std::max(largest, std::abs(x[k]));
        if (largest < 0x1p-90f) {
          ASSERT_EQ(once[at], 0);
          continue;
        }
        ASSERT_NEAR(once[at], x[at], std::abs(x[at]) / 15.9 + largest * (has_signs ? 0x1p-17 : 0x1p-33)) << i;
        if (std::abs(x[at]) == largest) {
          ASSERT_EQ(once[at], x[at]);
        }
      }
      EXPECT_EQ(e.part(64, 128).values(0, 64).to_vector<float>(),
                std::vector<float>(once.begin() + 64, once.begin() + 128));
      EXPECT_THROW(e.part(32, 64), Error) << "half a block";
    }
}

// 1 - beta must not come from a rounded beta: that loses up to eps / (1 - beta) of each moment, and of each update.
TEST(AdamW, BetasNearOneLoseNoAccuracy) {
  struct Betas {
    double first, second;
  };
  for (const auto [beta1, beta2] : {Betas{0.9, 0.999}, {0.9, 0.99999}, {0.999, 0.999}})
    for (const int64_t steps : {5, 400}) {
      SCOPED_TRACE(str("beta1 ", beta1, ", beta2 ", beta2, ", ", steps, " steps"));
      constexpr int64_t kCount = 257;
      std::vector<Slot> slots{slot("w", kCount, false)};
      std::fill_n(slots[0].master.mutable_values<float>(), kCount, 0.0f);  // else p itself would round
      auto optimizer = make_adamw({.beta1 = beta1, .beta2 = beta2}, slots);
      std::vector<double> p(kCount), m(kCount), v(kCount);
      for (int64_t step = 1; step <= steps; ++step) {
        set_gradient(slots[0], static_cast<uint64_t>(step));
        const auto g = slots[0].gradient.to_vector();
        update_once(*optimizer, slots, {.lr = 1e-3});
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

}  // namespace
}  // namespace lockstep::definitions_test
