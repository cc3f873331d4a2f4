// The engine: contributions, order, hooks, memory, in-place writes, repeated sweeps, depth.
#include <gtest/gtest.h>
#include <pthread.h>

#include "core/device/allocator.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/gradcheck.h"
#include "tests/support/sanitized.h"

namespace lockstep::autograd_test {
namespace {

using testing::random_tensor;

using testing::kSanitized;

Tensor leaf(const std::vector<float>& values) {
  Tensor t = Tensor::of(values, {static_cast<int64_t>(values.size())});
  return require_grad(t);
}

template <class Action>
std::string error_of(Action action, ExitCode code = ExitCode::kInternal) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}
void expect_says(const std::string& text, std::initializer_list<std::string> parts) {
  for (auto& p : parts) EXPECT_NE(text.find(p), std::string::npos) << text << "\nlacks: " << p;
}

TEST(Gradients, OfATiedWeightCountAllItsContributions) {
  Tensor w = leaf({2, 3});
  int fired = 0;
  std::vector<double> seen;
  w.record()->on_grad = [&] { ++fired, seen = grad_of(w).to_vector(); };
  // w * w + 5 w + exp-free path through two views: d/dw = 2 w + 5 + 1 + [1, 0]
  Tensor y = sum(mul(w, w)) + sum(affine(w, 5)) + sum(reshape(w, {2, 1})) + sum(slice(w, 0, 0, 1));
  backward(y);
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(seen, (std::vector<double>{11, 12}));
}

TEST(Gradients, AddUpOverSweepsUntilCleared) {
  Tensor w = leaf({1, -1});
  for (int i = 0; i < 3; ++i) backward(sum(affine(w, 2)));
  EXPECT_EQ(grad_of(w).to_vector(), (std::vector<double>{6, 6}));
  clear_grad(w);
  EXPECT_FALSE(grad_of(w).defined());
  backward(sum(affine(w, 2)), 0.5);
  EXPECT_EQ(grad_of(w).to_vector(), (std::vector<double>{1, 1}));
}

// A gradient passed on as it is must not be the same memory for two leaves.
TEST(Gradients, AreNotSharedAmongLeaves) {
  Tensor a = leaf({1, 2}), b = leaf({3, 4});
  backward(sum(a + b));
  ASSERT_FALSE(grad_of(a).same_place(grad_of(b)));
  raw::fill(grad_of(a), 9);
  EXPECT_EQ(grad_of(b).to_vector(), (std::vector<double>{1, 1}));
}

TEST(Gradients, LandInTheBufferBoundToTheLeaf) {
  Tensor w = Tensor::of(std::vector<float>{1, 2, 3, 4}, {2, 2});
  require_grad(w);
  Tensor flat = Tensor::full({8}, 99);
  w.record()->grad_buffer = Tensor::view_of(flat.storage(), 4, {2, 2}, DType::kFloat32);
  Tensor x = Tensor::of(std::vector<float>{1, 10}, {1, 2});
  backward(sum(linear(x, w)));
  EXPECT_TRUE(grad_of(w).same_place(w.record()->grad_buffer)) << "written, not copied";
  EXPECT_EQ(flat.to_vector(), (std::vector<double>{99, 99, 99, 99, 1, 10, 1, 10}))
      << "bound at the first contribution: not added to 99";
  // A gradient that arrives as another tensor is brought home.
  w.record()->grad = Tensor();
  backward(sum(w));
  EXPECT_TRUE(grad_of(w).same_place(w.record()->grad_buffer));
  EXPECT_EQ(flat.to_vector(), (std::vector<double>{99, 99, 99, 99, 1, 1, 1, 1}));
}

TEST(Sweep, RunsTheLatestOperationFirst) {
  Tensor x = leaf({1});
  std::vector<int> order;
  std::vector<Tensor> parts;
  for (int i = 0; i < 6; ++i) parts.push_back(with_backward_hook(affine(x, i), [&order, i] { order.push_back(i); }));
  Tensor y = parts[3];
  for (int i : {0, 5, 2, 4, 1}) y = add(y, parts[static_cast<size_t>(i)]);  // joined in another order
  backward(sum(y));
  EXPECT_EQ(order, (std::vector<int>{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(grad_of(x).item(), 15);
}

TEST(Hooks, FireWhenTheGradientIsFinalWhileTheSweepGoesOn) {
  Tensor w1 = random_tensor({3, 3}, 1, -1, 1, DType::kFloat32), w2 = random_tensor({3, 3}, 2, -1, 1, DType::kFloat32);
  require_grad(w1), require_grad(w2);
  std::vector<std::string> order;
  bool first_had_any = true;
  w2.record()->on_grad = [&] {
    order.push_back("w2");
    first_had_any = grad_of(w1).defined();
  };
  w1.record()->on_grad = [&] { order.push_back("w1"); };
  Tensor h = with_backward_hook(linear(Tensor::full({2, 3}, 1), w1), [&] { order.push_back("h"); });
  backward(sum(linear(h, w2)));
  EXPECT_EQ(order, (std::vector<std::string>{"w2", "h", "w1"}));
  EXPECT_FALSE(first_had_any);
}

TEST(Hooks, WaitForAllUsesOfATiedWeight) {
  Tensor w = random_tensor({3, 3}, 1, -1, 1, DType::kFloat32);
  require_grad(w);
  bool first_use_passed = false, fired = false;
  Tensor h = with_backward_hook(linear(Tensor::full({2, 3}, 1), w), [&] {
    first_use_passed = true;
    EXPECT_FALSE(fired) << "one use was still to come";
  });
  w.record()->on_grad = [&] {
    fired = true;
    EXPECT_TRUE(first_use_passed);
  };
  backward(sum(linear(h, w)));
  EXPECT_TRUE(fired);
}

TEST(Hooks, MayThrowAndTheGraphsLeavesStayUsable) {
  Tensor w = leaf({2});
  w.record()->on_grad = [] { throw Error(ExitCode::kNumeric, "enough"); };
  EXPECT_EQ(error_of([&] { backward(sum(affine(w, 3))); }, ExitCode::kNumeric), "enough");
  w.record()->on_grad = nullptr;
  clear_grad(w);
  backward(sum(affine(w, 3)));
  EXPECT_EQ(grad_of(w).item(), 3);
}

TEST(Recording, StopsUnderNoGradAndAtDetach) {
  Tensor w = leaf({2, 3});
  {
    NoGrad none;
    EXPECT_FALSE(requires_grad(mul(w, w)));
  }
  EXPECT_FALSE(requires_grad(w.detach()));
  EXPECT_TRUE(w.detach().same_place(w));
  Tensor y = sum(mul(w, w.detach()));
  backward(y);
  EXPECT_EQ(grad_of(w).to_vector(), (std::vector<double>{2, 3})) << "the detached factor is a constant";
  EXPECT_FALSE(requires_grad(sum(Tensor::full({2}, 1))));
  expect_says(error_of([] { backward(sum(Tensor::full({2}, 1))); }), {"needs no gradient"});
  expect_says(error_of([&] { backward(mul(w, w)); }), {"one element", "fp32[2]"});
  // A frozen leaf takes part without a gradient.
  Tensor frozen = leaf({4, 5});
  require_grad(frozen, false);
  backward(sum(mul(w, frozen)));
  EXPECT_FALSE(grad_of(frozen).defined());
}

TEST(Memory, IsFreedAsTheSweepPasses) {
  const int64_t n = 1 << 16, layers = 12, one = n * 4;
  Tensor x = Tensor::full({n}, 0.5);
  require_grad(x);
  const int64_t before = allocator_stats().bytes_in_use;
  std::vector<int64_t> in_use;
  {
    Tensor h = x;
    for (int64_t i = 0; i < layers; ++i)
      h = with_backward_hook(tanh(h), [&] { in_use.push_back(allocator_stats().bytes_in_use - before); });
    Tensor y = sum(h);
    h = Tensor();
    EXPECT_GE(allocator_stats().bytes_in_use - before, layers * one) << "each layer keeps its result";
    backward(y);
    ASSERT_EQ(in_use.size(), static_cast<size_t>(layers));
    for (size_t i = 1; i < in_use.size(); ++i) EXPECT_LE(in_use[i], in_use[i - 1] - one + 4096) << "layer " << i;
    EXPECT_LE(allocator_stats().bytes_in_use - before, one + 4096) << "the leaf's gradient alone is left, and the loss";
  }
}

TEST(Memory, ReleasedAndRefilledBytesAreReadAgainInBackward) {
  Tensor w = Tensor::of(std::vector<float>{1, 2, 3, 4}, {2, 2}), x = Tensor::of(std::vector<float>{1, 1}, {1, 2});
  require_grad(w), require_grad(x);
  Tensor y = sum(linear(x, w));
  w.storage()->release();
  expect_says(error_of([&] { backward(y); }), {"released"});
  // As a sharded parameter does it: dropped after forward, gathered again before backward.
  Tensor again = Tensor::of(std::vector<float>{1, 2, 3, 4}, {2, 2});
  w.allocate();
  memcpy(w.storage()->data(), again.read(), 16);  // a refill is no write
  clear_grad(x), clear_grad(w);
  Tensor z = sum(linear(x, w));
  w.storage()->release();
  w.allocate();
  memcpy(w.storage()->data(), again.read(), 16);
  backward(z);
  EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{4, 6}));
}

TEST(InPlace, WriteUnderASavedValueIsCaughtAndNamesTheOperation) {
  struct Case {
    const char* op;
    std::function<Tensor(const Tensor&)> f;
  };
  for (const Case& c :
       {Case{"mul", [](const Tensor& t) { return mul(t, t); }}, Case{"gelu", [](const Tensor& t) { return gelu(t); }},
        Case{"softmax", [](const Tensor& t) { return softmax(t); }}}) {
    Tensor x = leaf({1, 2});
    Tensor h = affine(x, 1), y = c.f(h);
    add_in_place(std::string(c.op) == "softmax" ? y : h, Tensor::full({2}, 1));
    expect_says(error_of([&] { backward(sum(y)); }), {str("saved by ", c.op), "written in place", "fp32[2]"});
  }
  // Nothing is said where backward does not need the value.
  Tensor x = leaf({1, 2});
  Tensor h = affine(x, 1), y = affine(h, 3);
  add_in_place(h, Tensor::full({2}, 1));
  backward(sum(y));
  EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{3, 3}));
}

TEST(SecondSweep, IsRefused) {
  Tensor x = leaf({1, 2});
  Tensor y = sum(mul(x, x));
  backward(y);
  expect_says(error_of([&] { backward(y); }), {"already swept"});
  EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{2, 4})) << "the refused sweep added nothing";
  // Through a part that two roots share: the operation and its call are named.
  Tensor shared = mul(x, x);
  const int line = __LINE__ - 1;
  Tensor first = sum(shared), second = sum(affine(shared, 2));
  backward(first);
  expect_says(error_of([&] { backward(second); }),
              {"backward through mul", str("tests/core/autograd_test.cpp:", line), "second time"});
}

TEST(Anomaly, NamesTheForwardCallOfTheFirstNonFiniteResult) {
  WithAnomaly on;
  Tensor x = leaf({1, 0, 2});
  int line = 0;
  const std::string text = error_of(
      [&] {
        line = __LINE__ + 1;
        Tensor y = log(affine(x, -1));
        Tensor z = exp(y);  // never reached
      },
      ExitCode::kNumeric);
  expect_says(text, {"result of log", str("tests/core/autograd_test.cpp:", line), "fp32[3]"});
  // Outside the mode, and where no gradient is asked for, it is found just as well.
  expect_says(error_of([] { exp(Tensor::full({2}, 1000)); }, ExitCode::kNumeric), {"result of exp"});
  WithAnomaly off(false);
  EXPECT_NO_THROW(log(affine(x, -1)));
}

TEST(Anomaly, NamesTheForwardCallOfTheFirstNonFiniteGradient) {
  WithAnomaly on;
  Tensor x = leaf({4, 0});
  Tensor h = affine(x, 1);
  const int line = __LINE__ + 1;
  Tensor y = sqrt(h);
  Tensor z = sum(affine(y, 2));
  expect_says(error_of([&] { backward(z); }, ExitCode::kNumeric),
              {"backward pass of sqrt", str("tests/core/autograd_test.cpp:", line)});
}

// A million operations deep, on a stack that could not hold a ten-thousandth of a recursion.
struct Deep {
  int64_t depth = 0;
  double gradient = 0;
  bool sweep = true;
};

void* build_deep(void* raw) {
  Deep& d = *static_cast<Deep*>(raw);
  Tensor x = Tensor::full({1}, 1);
  require_grad(x);
  Tensor h = x;
  for (int64_t i = 0; i < d.depth; ++i) h = affine(h, 1);
  if (d.sweep) {
    backward(h);
    d.gradient = grad_of(x).item();
  }
  h = Tensor();  // without a sweep the whole chain is taken apart here
  return nullptr;
}

void on_small_stack(Deep& d) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kSanitized ? 1 << 20 : 128 << 10), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, build_deep, &d), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(Depth, IsNoRecursionInSweepOrDestruction) {
  for (int64_t depth : {int64_t(10000), kSanitized ? int64_t(50000) : int64_t(1000000)})
    for (bool sweep : {true, false}) {
      Deep d{depth, 0, sweep};
      on_small_stack(d);
      if (sweep) {
        EXPECT_EQ(d.gradient, 1) << depth;
      }
    }
}

// Width: one value used by very many operations.
TEST(Depth, AndWidthAddUp) {
  Tensor x = leaf({1});
  std::vector<Tensor> parts;
  for (int i = 0; i < 2000; ++i) parts.push_back(affine(x, 1));
  while (parts.size() > 1) {
    std::vector<Tensor> next;
    for (size_t i = 0; i + 1 < parts.size(); i += 2) next.push_back(add(parts[i], parts[i + 1]));
    if (parts.size() % 2) next.push_back(parts.back());
    parts = std::move(next);
  }
  backward(parts[0]);
  EXPECT_EQ(grad_of(x).item(), 2000);
}

}  // namespace
}  // namespace lockstep::autograd_test
