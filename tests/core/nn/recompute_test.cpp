// Recomputation: the same bits, hooks and random numbers as without it, in less memory; and what it refuses.
#include "core/nn/recompute.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include "core/device/allocator.h"
#include "core/models/gpt.h"
#include "core/models/llama.h"
#include "core/models/mlp.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/each_device.h"
#include "tests/support/files.h"
#include "tests/support/gradcheck.h"

namespace lockstep::recompute_test {
namespace {

using test::expect_error;
using testing::random_tensor;
using testing::Values;

// What one sweep gave: values of the results and gradients, and whose gradient was final when.
struct Swept {
  Values values;
  std::vector<std::string> final;
};
void expect_same(const Swept& a, const Swept& b, const std::string& what) {
  testing::expect_equal_bits(a.values, b.values, what);
  EXPECT_EQ(a.final, b.final) << what;
}

Tensor leaf(const Shape& shape, uint64_t seed) {
  Tensor t = random_tensor(shape, seed, -1, 1, DType::kFloat32);
  return require_grad(t);
}

using Function = std::function<Tensor(const Tensor&)>;
// How a test calls a part of its model: plainly, or recomputed.
using Caller = std::function<Tensor(const Tensor&, const std::vector<Tensor>&, Function)>;
const Caller kPlain = [](const Tensor& x, const std::vector<Tensor>&, const Function& f) { return f(x); };
const Caller kAgain = [](const Tensor& x, const std::vector<Tensor>& p, const Function& f) {
  return recomputed(x, p, f);
};

// Runs model(call, leaves) both ways and compares everything. The model returns one element.
void same_both_ways(const std::function<Tensor(const Caller&, std::vector<Tensor>&)>& model) {
  auto run = [&](const Caller& call) {
    std::vector<Tensor> leaves;
    for (uint64_t i = 0; i < 4; ++i) leaves.push_back(leaf({5, 5}, i + 1));
    Swept out;
    for (size_t i = 0; i < leaves.size(); ++i)
      leaves[i].record()->on_grad = [&out, i] { out.final.push_back(std::to_string(i)); };
    Tensor y = model(call, leaves);
    out.values.push_back(y.to_vector());
    backward(y);
    for (const Tensor& t : leaves) out.values.push_back(grad_of(t) ? grad_of(t).to_vector() : std::vector<double>());
    for (const Tensor& t : leaves) t.record()->on_grad = nullptr;
    return out;
  };
  const Swept plain = run(kPlain), again = run(kAgain);
  expect_same(plain, again, "recomputed");
  EXPECT_FALSE(plain.final.empty());
}

TEST(Recomputed, OneCallAmongOtherUsesOfItsInputs) {
  same_both_ways([](const Caller& call, std::vector<Tensor>& w) {
    const Tensor h = tanh(linear(Tensor::full({3, 5}, 0.3), w[0]));
    const Tensor before = linear(h, w[1]);
    const Tensor y = call(h, {w[1], w[2]},
                          [&](const Tensor& x) { return add(gelu(linear(gelu(linear(x, w[1])), w[2])), mul(x, x)); });
    return sum(add(mul(linear(y, w[1]), h), linear(add(before, h), w[3])));
  });
}

TEST(Recomputed, SeveralCallsOfOneFunctionInAChainAndSideBySide) {
  same_both_ways([](const Caller& call, std::vector<Tensor>& w) {
    const Function block = [&](const Tensor& x) { return add(x, tanh(linear(linear(x, w[0]), w[0]))); };
    Tensor h = linear(Tensor::full({3, 5}, 0.3), w[1]);
    for (int i = 0; i < 4; ++i) h = call(h, {w[0]}, block);
    return sum(add(call(h, {w[0]}, block), mul(h, call(h, {w[0]}, block))));
  });
}

// Attends to a second tensor, one that is also its first, and a factor that is no tensor.
struct TwoInputs : ModuleOf<Tensor, Tensor, double> {
  TwoInputs() : q_(child<Linear>("q", 6, 6)), kv_(child<Linear>("kv", 4, 12)), drop_(child<Dropout>("drop", 0.3)) {}
  Tensor forward(const Tensor& x, const Tensor& other, const double& factor) override {
    ++runs;
    const auto heads = [](const Tensor& t) { return reshape(t, {t.dim(0), t.dim(1), 2, 3}); };
    const Tensor kv = kv_(other);
    const Tensor y = attention(heads(q_(x)), heads(slice(kv, 2, 0, 6)), heads(slice(kv, 2, 6, 12)));
    return add(x, drop_(affine(reshape(y, x.shape()), factor)));
  }
  Linear &q_, &kv_;
  Dropout& drop_;
  int runs = 0;
};

TEST(Recomputed, AModuleOfSeveralTensors) {
  const auto run = [](bool again) {
    TwoInputs module;
    place_parameters(module, 3);
    module.set_recompute(again);
    std::vector<std::string> called;
    module.set_hooks({[&] { called.push_back("before"); }, [&] { called.push_back("after"); },
                      [&] { called.push_back("backward"); }});
    Tensor x = leaf({2, 3, 6}, 1), other = leaf({2, 5, 4}, 2);
    WithRandom random({7, 1, std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{4, 9})});
    const Tensor y = sum(mul(module(tanh(x), other, 0.5), x));
    Swept out;
    out.values.push_back(y.to_vector());
    backward(y);
    for (const Tensor& t : {x, other}) out.values.push_back(grad_of(t).to_vector());
    for (auto& p : module.parameters()) out.values.push_back(grad_of(p.parameter->value).to_vector());
    EXPECT_EQ(module.runs, again ? 2 : 1);
    EXPECT_EQ(called, (std::vector<std::string>{"before", "after", "backward"}));
    return out;
  };
  expect_same(run(false), run(true), "two inputs");
}

TEST(Recomputed, OneTensorAsBothInputs) {
  const auto run = [](bool again) {
    Tensor x = leaf({3, 5}, 1), w = leaf({5, 5}, 2);
    const Tensor h = tanh(linear(x, w));
    const ForwardPass both = [&](const std::vector<Tensor>& in) { return mul(linear(in[0], w), in[1]); };
    const Tensor y = sum(again ? recomputed({h, h}, {w}, both) : both({h, h}));
    Swept out;
    out.values.push_back(y.to_vector());
    backward(y);
    for (const Tensor& t : {x, w}) out.values.push_back(grad_of(t).to_vector());
    return out;
  };
  expect_same(run(false), run(true), "the same tensor twice");
}

TEST(Recomputed, Nested) {
  same_both_ways([](const Caller& call, std::vector<Tensor>& w) {
    const Function inner = [&](const Tensor& x) { return tanh(linear(x, w[1])); };
    const Function middle = [&, inner](const Tensor& x) {
      return add(call(linear(x, w[0]), {w[1]}, inner), call(x, {w[1]}, inner));
    };
    const Function outer = [&, middle](const Tensor& x) { return linear(call(tanh(x), {w[0], w[1]}, middle), w[2]); };
    Tensor h = linear(Tensor::full({3, 5}, 0.3), w[3]);
    for (int i = 0; i < 3; ++i) h = call(h, {w[0], w[1], w[2]}, outer);
    return sum(mul(h, h));
  });
}

TEST(Recomputed, WithPartsThatNeedNoGradient) {
  // The input needs none; nor does a branch inside, a frozen parameter, and one that is not used.
  same_both_ways([](const Caller& call, std::vector<Tensor>& w) {
    require_grad(w[1], false);
    const Tensor y = call(random_tensor({3, 5}, 9, -1, 1, DType::kFloat32), {w[0], w[1]}, [&](const Tensor& x) {
      const Tensor constant = exp(linear(x, w[1]));
      return mul(constant, linear(x, w[0]));
    });
    return sum(y);
  });
  // Nothing needs one: nothing is recorded.
  const Tensor x = Tensor::full({2, 2}, 1);
  EXPECT_FALSE(requires_grad(recomputed(x, {x}, [](const Tensor& t) { return tanh(t); })));
  Tensor w = leaf({2, 2}, 1);
  {
    NoGrad none;
    EXPECT_FALSE(requires_grad(recomputed(x, {w}, [&](const Tensor& t) { return linear(t, w); })));
  }
  // A parameter that takes no part gets no gradient, and is told so once.
  Tensor unused = leaf({2, 2}, 2);
  int fired = 0;
  unused.record()->on_grad = [&] { ++fired; };
  backward(sum(recomputed(x, {w, unused}, [&](const Tensor& t) { return linear(t, w); })));
  EXPECT_EQ(fired, 1);
  EXPECT_FALSE(grad_of(unused).defined());
  EXPECT_TRUE(grad_of(w).defined());
  // A result that depends on nothing.
  Tensor z = leaf({2, 2}, 3);
  backward(sum(recomputed(z, {}, [](const Tensor& t) { return tanh(t.detach()); })));
  EXPECT_FALSE(grad_of(z).defined());
}

TEST(Recomputed, OfAFunctionThatGivesItsInputBack) {
  same_both_ways([](const Caller& call, std::vector<Tensor>& w) {
    const Tensor h = linear(Tensor::full({3, 5}, 0.3), w[0]);
    const Tensor y = call(h, {w[1]}, [](const Tensor& x) { return x; });
    const Tensor z = call(h, {w[1]}, [&](const Tensor&) { return w[1]; });
    return sum(matmul(mul(y, h), z));
  });
}

TEST(Recomputed, DrawsTheSameRandomNumbers) {
  same_both_ways([](const Caller& call, std::vector<Tensor>& w) {
    WithRandom with({7, 3, std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{4, 5, 6})});
    const Function block = [&](const Tensor& x) {
      const Tensor h = dropout(linear(x, w[1]), 0.4, random_site("a"));
      return dropout(tanh(h), 0.4, random_site(h.dim(0) == 3 ? "a" : "b"));
    };
    Tensor h = dropout(linear(Tensor::full({3, 5}, 0.3), w[0]), 0.2, random_site("a"));
    for (int i = 0; i < 3; ++i) h = dropout(call(h, {w[1]}, block), 0.2, random_site("a"));
    // The sweep runs under no key at all.
    return sum(mul(h, w[2].slice(0, 0, 3)));
  });
}

TEST(Recomputed, AddsUpOverSweeps) {
  Tensor w = leaf({3, 3}, 1), plain = leaf({3, 3}, 1);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = random_tensor({2, 3}, static_cast<uint64_t>(i), -1, 1, DType::kFloat32);
    backward(sum(recomputed(x, {w}, [&](const Tensor& t) { return tanh(linear(t, w)); })));
    backward(sum(tanh(linear(x, plain))));
  }
  EXPECT_EQ(grad_of(w).to_vector(), grad_of(plain).to_vector());
}

TEST(Recomputed, RefusesWhatWasWrittenInPlace) {
  for (bool parameter : {false, true}) {
    Tensor w = leaf({3, 3}, 1);
    Tensor h = affine(leaf({2, 3}, 2), 2);
    Tensor y = sum(recomputed(h, {w}, [&](const Tensor& t) { return linear(t, w); }));
    add_in_place(parameter ? w.detach() : h, Tensor::full({1}, 1));
    expect_error(ExitCode::kInternal,
                 {"saved by recomputed", "written in place", parameter ? "fp32[3, 3]" : "fp32[2, 3]"},
                 [&] { backward(y); });
  }
}

TEST(Recomputed, RefusesAFunctionOfMoreThanItsInputs) {
  Tensor w = leaf({3, 3}, 1), other = leaf({3, 3}, 2);
  const Tensor x = affine(leaf({3, 3}, 3), 1), side = tanh(other);
  const int line = __LINE__ + 1;
  Tensor y = sum(recomputed(x, {w}, [&](const Tensor& t) { return add(linear(t, w), other); }));
  expect_error(ExitCode::kInternal,
               {"recomputed", str("recompute_test.cpp:", line), "leaf", "[3, 3]", "nor among its parameters"},
               [&] { backward(y); });
  y = sum(recomputed(x, {w}, [&](const Tensor& t) { return add(linear(t, w), side); }));
  expect_error(ExitCode::kInternal, {"tanh", str("recompute_test.cpp:", line - 2)}, [&] { backward(y); });
  int runs = 0;
  y = sum(
      recomputed(x, {w}, [&](const Tensor& t) { return ++runs == 1 ? linear(t, w) : slice(linear(t, w), 0, 0, 2); }));
  expect_error(ExitCode::kInternal, {"fp32[3, 3] at first", "fp32[2, 3]"}, [&] { backward(y); });
  // The refused sweeps left nothing behind.
  for (const Tensor& t : {w, other}) clear_grad(t);
  backward(sum(linear(Tensor::full({1, 3}, 1), add(w, other))));
  EXPECT_EQ(grad_of(other).to_vector(), std::vector<double>(9, 1));
  EXPECT_EQ(grad_of(w).to_vector(), std::vector<double>(9, 1));
}

TEST(Recomputed, LeavesItsLeavesUsableWhereItThrows) {
  Tensor w = leaf({3, 3}, 1);
  int runs = 0;
  auto loss = [&] {
    const Tensor x = Tensor::full({2, 3}, 0.5);
    return sum(recomputed(x, {w}, [&](const Tensor& t) {
      if (++runs == 2) throw Error(ExitCode::kBadData, "not again");
      return tanh(linear(t, w));
    }));
  };
  Tensor y = loss();
  expect_error(ExitCode::kBadData, {"not again"}, [&] { backward(y); });
  EXPECT_TRUE(context().grad);
  EXPECT_EQ(context().random.samples, nullptr);
  clear_grad(w);
  backward(loss());
  EXPECT_TRUE(grad_of(w).defined());
}

TEST(Recomputed, IsSweptOnce) {
  Tensor w = leaf({3, 3}, 1);
  const Tensor shared = recomputed(Tensor::full({2, 3}, 0.5), {w}, [&](const Tensor& t) { return linear(t, w); });
  const int line = __LINE__ - 1;
  Tensor first = sum(shared), second = sum(affine(shared, 2));
  backward(first);
  expect_error(ExitCode::kInternal, {"backward through recomputed", str("recompute_test.cpp:", line), "second time"},
               [&] { backward(second); });
}

TEST(Recomputed, AnomalyModeNamesTheOperationInside) {
  WithAnomaly on;
  Tensor x = Tensor::of(std::vector<float>{4, 0}, {2});
  require_grad(x);
  int line = 0;
  Tensor y = sum(recomputed(affine(x, 1), {}, [&](const Tensor& t) {
    line = __LINE__ + 1;
    return sqrt(t);
  }));
  expect_error(ExitCode::kNumeric, {"backward pass of sqrt", str("recompute_test.cpp:", line)}, [&] { backward(y); });
}

// The chain is taken apart without recursion, swept or not.
void* chain(void*) {
  Tensor x = Tensor::full({1}, 1);
  require_grad(x);
  for (bool sweep : {true, false}) {
    Tensor h = x;
    for (int i = 0; i < 20000; ++i) h = recomputed(h, {}, [](const Tensor& t) { return affine(t, 1); });
    if (sweep) backward(h);
  }
  EXPECT_EQ(grad_of(x).item(), 1);
  return nullptr;
}
TEST(Recomputed, InALongChainOnASmallStack) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 1 << 20), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, chain, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// --- Modules

std::shared_ptr<const std::vector<int64_t>> samples(std::vector<int64_t> s) {
  return std::make_shared<const std::vector<int64_t>>(std::move(s));
}

Tensor tokens(int64_t rows, int64_t time, int seed) {
  std::vector<int32_t> v;
  for (int64_t i = 0; i < rows * time; ++i) v.push_back(static_cast<int32_t>((i * 7 + seed * 5 + i * i) % 11));
  return Tensor::of(v, {rows, time});
}

// Two micro-batches.
Swept two_steps(Model& model) {
  Swept out;
  for (auto& p : model.parameters())
    if (requires_grad(p.parameter->value))
      p.parameter->value.record()->on_grad = [&out, name = p.name] { out.final.push_back(name); };
  for (int micro = 0; micro < 2; ++micro) {
    Tensor loss;
    {
      WithRandom random({1, micro, samples({3, 4})});
      loss = cross_entropy(model(tokens(2, 6, micro)), tokens(2, 6, micro + 1));
    }
    out.values.push_back(loss.to_vector());
    backward(loss);
  }
  for (auto& p : model.parameters())
    if (requires_grad(p.parameter->value)) out.values.push_back(grad_of(p.parameter->value).to_vector());
  return out;
}

// With dropout and a tied head.
Swept gpt_steps(const std::function<void(Gpt&)>& prepare) {
  Gpt model({.layers = 3, .heads = 2, .width = 16, .dropout = 0.2}, {{6}, 11});
  place_parameters(model, 3);
  prepare(model);
  return two_steps(model);
}
Swept llama_steps(Recompute mode, BranchNorm norms) {
  const bool after = norms == BranchNorm::kAfter;
  Llama model({.layers = 3,
               .heads = 4,
               .width = 16,
               .kv_heads = 2,
               .window = 4,
               .no_rope_every = after ? 2 : 0,
               .tied = true,
               .qk_norm = true,
               .qk_norm_whole = after,
               .norms = norms},
              {{6}, 11});
  place_parameters(model, 3);
  EXPECT_EQ(apply_recompute(model, mode), mode == Recompute::kNone ? 0 : 3);
  return two_steps(model);
}

TEST(Modules, RecomputeALlamaWithTheSameBitsAndHooks) {
  for (const BranchNorm norms : {BranchNorm::kBefore, BranchNorm::kAfter})
    for (Recompute mode : {Recompute::kBlock, Recompute::kAttention})
      expect_same(llama_steps(Recompute::kNone, norms), llama_steps(mode, norms),
                  str("mode ", static_cast<int>(mode), ", norms ", static_cast<int>(norms)));
}

TEST(Modules, RecomputeInEveryModeWithTheSameBitsAndHooks) {
  const Swept plain = gpt_steps([](Gpt&) {});
  EXPECT_EQ(plain.final.size(), 2 * plain.values.size() - 4) << "each gradient was final once in a sweep";
  for (Recompute mode : {Recompute::kBlock, Recompute::kAttention, Recompute::kNone})
    expect_same(plain,
                gpt_steps([&](Gpt& m) { EXPECT_EQ(apply_recompute(m, mode), mode == Recompute::kNone ? 0 : 3); }),
                str("mode ", static_cast<int>(mode)));
  expect_same(plain, gpt_steps([](Gpt& m) {
                apply_recompute(m, Recompute::kBlock);
                m.recompute_attention(true);
                for (auto& [_, block] : m.children())
                  for (auto& [_, layer] : block->children()) layer->set_recompute(true);
              }),
              "nested");
  expect_same(plain, gpt_steps([](Gpt& m) {
                apply_recompute(m, Recompute::kBlock);
                apply_recompute(m, Recompute::kAttention);
                apply_recompute(m, Recompute::kNone);
              }),
              "on and off again");
  // Frozen parameters and the tied table, which then takes a gradient as head alone: none.
  auto freeze = [](Gpt& m) {
    for (auto& p : m.parameters())
      if (p.name.find("wte") != p.name.npos || p.name.find("wpe") != p.name.npos || p.name.find(".qkv") != p.name.npos)
        require_grad(p.parameter->value, false);
  };
  expect_same(gpt_steps(freeze), gpt_steps([&](Gpt& m) {
                freeze(m);
                apply_recompute(m, Recompute::kBlock);
              }),
              "frozen parts");
}

TEST(Modules, RecomputeAlikeOnEachDevice) {
  for (Recompute mode : {Recompute::kBlock, Recompute::kAttention})
    testing::same_on_each_device([&] { return gpt_steps([&](Gpt& m) { apply_recompute(m, mode); }).values; });
}

TEST(Modules, OwnHooksSurroundTheFirstRunAlone) {
  Gpt model({.layers = 1, .heads = 2, .width = 8}, {{4}, 11});
  place_parameters(model, 1);
  EXPECT_EQ(apply_recompute(model, Recompute::kBlock), 1);
  std::vector<std::string> order;
  auto listen = [&](Module& m, const std::string& name) {
    m.set_hooks({[&order, name] { order.push_back("before " + name); },
                 [&order, name] { order.push_back("after " + name); },
                 [&order, name] { order.push_back("backward " + name); }});
  };
  for (auto& [name, child] : model.children())
    if (name == "blocks.0") {
      listen(*child, "block");
      for (auto& [inner, layer] : child->children())
        if (inner == "proj") listen(*layer, "proj");
    }
  for (auto& p : model.parameters())
    if (p.name == "blocks.0.proj.weight") p.parameter->value.record()->on_grad = [&] { order.push_back("final"); };
  Tensor loss = cross_entropy(model(tokens(1, 4, 1)), tokens(1, 4, 2));
  EXPECT_EQ(order, (std::vector<std::string>{"before block", "before proj", "after proj", "after block"}));
  order.clear();
  backward(loss);
  EXPECT_EQ(order, (std::vector<std::string>{"backward block", "before proj", "after proj", "backward proj", "final"}));
}

TEST(Modules, ModesThatFitNothingSaySo) {
  Mlp mlp({.hidden = {5}}, {{3}, 2});
  for (Recompute mode : {Recompute::kNone, Recompute::kBlock, Recompute::kAttention})
    EXPECT_EQ(apply_recompute(mlp, mode), 0);
}

TEST(Modules, MustStayInTheirModeUntilTheyAreRunAgain) {
  Gpt model({.layers = 1, .heads = 2, .width = 8}, {{4}, 11});
  place_parameters(model, 1);
  apply_recompute(model, Recompute::kBlock);
  Tensor loss = cross_entropy(model(tokens(1, 4, 1)), tokens(1, 4, 2));
  model.eval();
  expect_error(ExitCode::kInternal, {"blocks.0", "train() or eval()"}, [&] { backward(loss); });
}

int64_t peak_of(Recompute mode) {
  Gpt model({.layers = 12, .heads = 2, .width = 64}, {{64}, 11});
  place_parameters(model, 1);
  EXPECT_EQ(apply_recompute(model, mode), mode == Recompute::kNone ? 0 : 12);
  const Tensor x = tokens(8, 64, 1), y = tokens(8, 64, 2);
  int64_t activations = 0;
  for (int sweep = 0; sweep < 2; ++sweep) {  // gradients are there in the second
    const int64_t before = allocator_stats().bytes_in_use;
    reset_peak_bytes();
    backward(cross_entropy(model(x), y));
    activations = allocator_stats().peak_bytes - before;
  }
  return activations;
}

TEST(Modules, RecomputeInMuchLessMemory) {
  const int64_t plain = peak_of(Recompute::kNone), block = peak_of(Recompute::kBlock),
                attention = peak_of(Recompute::kAttention);
  // A block keeps some 15 times its input; of twelve, recomputed, one is whole at a time.
  EXPECT_LT(4 * block, plain) << block << " bytes with recomputation, " << plain << " without";
  EXPECT_LT(attention, plain - 12 * 4 * 8 * 64 * 64 * 4) << "ln1, qkv, attention and proj: at least four times x";
  EXPECT_LT(block, attention);
}

}  // namespace
}  // namespace lockstep::recompute_test
