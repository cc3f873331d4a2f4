// An optimizer in tensor expressions computes what its formula says, on each device, in parts of a parameter, and
// refuses results of another shape. What holds for every optimizer: optimizer_test.
#include "optim/tensor_optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/tensor/raw_ops.h"
#include "tests/optim/slots.h"
#include "tests/optim/tensor_adamw.h"
#include "tests/support/each_device.h"
#include "tests/support/files.h"

namespace lockstep::tensor_optimizer_test {
namespace {

using testing::make_tensor_adamw;
using testing::set_gradient;
using testing::slot;
using testing::update_once;

constexpr AdamWOptions kOptions{.lr = 0.01, .weight_decay = 0.1};

// Loshchilov and Hutter 2019, in fp64.
std::vector<double> reference(std::vector<double> p, double lr_scale, int64_t updates, double grad_scale) {
  std::vector<double> m(p.size()), v(p.size());
  for (int64_t t = 1; t <= updates; ++t) {
    const auto gradients = testing::numbers(static_cast<int64_t>(p.size()), 100 + static_cast<uint64_t>(t), 2);
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = double{gradients[i]} * grad_scale, lr = kOptions.lr * lr_scale;
      m[i] = kOptions.beta1 * m[i] + (1 - kOptions.beta1) * g;
      v[i] = kOptions.beta2 * v[i] + (1 - kOptions.beta2) * g * g;
      const double first = m[i] / (1 - std::pow(kOptions.beta1, t)), second = v[i] / (1 - std::pow(kOptions.beta2, t));
      p[i] = p[i] * (1 - lr * kOptions.weight_decay) - lr * first / (std::sqrt(second) + kOptions.epsilon);
    }
  }
  return p;
}

TEST(TensorOptimizer, ComputesItsFormula) {
  std::vector<Slot> slots{slot("w", 1003, true, 0.5)};
  const std::vector<double> before = slots[0].master.to_vector();
  const auto o = make_tensor_adamw(kOptions, slots);
  for (uint64_t step = 1; step <= 10; ++step) {
    set_gradient(slots[0], step);
    update_once(*o, slots, {.lr = kOptions.lr, .grad_scale = 0.5});
  }
  const auto expected = reference(before, 0.5, 10, 0.5), found = slots[0].master.to_vector();
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 2e-6) << i;
}

TEST(TensorOptimizer, IsAsTheFusedOneUpToRounding) {
  std::vector<Slot> own{slot("w", 777, true)}, fused{slot("w", 777, true)};
  const auto o = make_tensor_adamw(kOptions, own);
  const auto f = make_adamw(kOptions, fused);
  for (uint64_t step = 1; step <= 20; ++step) {
    set_gradient(own[0], step), set_gradient(fused[0], step);
    o->step(own, {.grad_scale = 1, .finite = step != 7});  // the rate is that of the options
    f->step(fused, {.grad_scale = 1, .finite = step != 7});
  }
  const auto a = own[0].master.to_vector(), b = fused[0].master.to_vector();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-6) << i;
}

TEST(TensorOptimizer, EachDeviceHasTheSameBits) {
  testing::same_on_each_device([] {
    Slot s;
    s.name = "w", s.region = Shape{1003}, s.decay = true;
    s.master = raw::to_device(Tensor::of(testing::numbers(1003, 1), {1003}), current_device());
    s.copy = Tensor::zeros({1003}, DType::kBFloat16);
    const std::vector<Slot> slots{s};
    const auto o = make_tensor_adamw(kOptions, slots);
    for (uint64_t step = 1; step <= 5; ++step) {
      std::vector<Slot> now = slots;
      now[0].gradient = raw::to_device(Tensor::of(testing::numbers(1003, 100 + step, 2), {1003}), current_device());
      o->step(now, {.grad_scale = 0.25, .finite = step != 3});
    }
    testing::Values out{s.master.to_vector(), s.copy.to_vector()};
    for (const StateEntry& e : o->state(slots)) out.push_back(e.data.to_vector());
    return out;
  });
}

// Longer than what is updated at a time: the same as two parameters.
TEST(TensorOptimizer, PartsOfALongParameterAreAsItsWhole) {
  constexpr int64_t kLong = (1 << 22) + 70, kCut = 1 << 22;
  Slot whole = slot("w", kLong, true);
  set_gradient(whole, 1);
  Slot first = slot("a", kCut, true), second = slot("b", kLong - kCut, true);
  raw::copy(second.master, whole.master.slice(0, kCut, kLong));  // the first has its own beginning of the same numbers
  first.gradient = whole.gradient.slice(0, 0, kCut), second.gradient = whole.gradient.slice(0, kCut, kLong);
  const std::vector<Slot> one{whole}, two{first, second};
  make_tensor_adamw(kOptions, one)->step(one, {.grad_scale = 1, .finite = true});
  make_tensor_adamw(kOptions, two)->step(two, {.grad_scale = 1, .finite = true});
  std::vector<double> both = first.master.to_vector(), rest = second.master.to_vector();
  both.insert(both.end(), rest.begin(), rest.end());
  EXPECT_EQ(whole.master.to_vector(), both);
}

class WrongShape final : public TensorOptimizer {
 public:
  explicit WrongShape(const std::vector<Slot>& slots) : TensorOptimizer(slots, std::vector<std::string>{}) {}

 private:
  Tensor updated(TensorUpdate& u) const override { return u.lr; }
};

TEST(TensorOptimizer, RefusesResultsOfAnotherShapeAndStepsWithoutARate) {
  std::vector<Slot> slots{slot("w", 12, true)};
  WrongShape o(slots);
  test::expect_error(ExitCode::kInternal, {"set_lr"}, [&] { o.step(slots, {.grad_scale = 1, .finite = true}); });
  test::expect_error(ExitCode::kInternal, {"new value of w", "[1]", "[12]"},
                     [&] { update_once(o, slots, {.lr = 0.1}); });
  test::expect_error(ExitCode::kInternal, {"learning rate"}, [&] { o.set_lr(NAN); });
}

}  // namespace
}  // namespace lockstep::tensor_optimizer_test
