// Large kernels: equal bits at 1, 2, 3, 5 threads and on the asynchronous device; products do not depend on how they
// are cut; attention's memory grows linearly.
#include <gtest/gtest.h>

#include "core/base/partition.h"
#include "core/base/state_chunk.h"
#include "core/device/allocator.h"
#include "core/nn/init.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/each_device.h"
#include "tests/support/gradcheck.h"

namespace lockstep::kernels_test {
namespace {

using testing::random_tensor;
using testing::same_on_each_device;
using testing::Values;
using Inputs = std::vector<Tensor>;
using Function = std::function<Tensor(const Inputs&)>;

// Results and gradients of f at inputs of these shapes, all made on the current device.
Values run(const Function& f, const std::vector<Shape>& shapes, DType dtype) {
  Inputs inputs;
  for (size_t i = 0; i < shapes.size(); ++i) {
    inputs.push_back(random_tensor(shapes[i], i + 1, 0.25, 1.5, dtype));
    require_grad(inputs.back());
  }
  Tensor y = f(inputs);
  Values out{y.to_vector()};
  backward(sum(mul(cast(y, DType::kFloat32), random_tensor(y.shape(), 77, 0.5, 1.5, DType::kFloat32))));
  for (const Tensor& t : inputs) out.push_back(grad_of(t).to_vector());
  return out;
}

void same(const char* name, const Function& f, const std::vector<Shape>& shapes,
          std::initializer_list<DType> dtypes = {DType::kFloat32, DType::kBFloat16}) {
  for (DType dtype : dtypes) {
    SCOPED_TRACE(str(name, " in ", dtype));
    same_on_each_device([&] { return run(f, shapes, dtype); });
  }
}

TEST(EveryThreadCount, Pointwise) {
  same("add", [](const Inputs& x) { return add(x[0], x[1]); }, {{130, 700}, {700}});
  same("mul with broadcast rows", [](const Inputs& x) { return mul(x[0], x[1]); }, {{130, 700}, {130, 1}});
  same("mul of columns", [](const Inputs& x) { return mul(slice(x[0], 1, 100, 650), slice(x[1], 1, 1, 551)); },
       {{130, 700}, {130, 555}});
  same("div", [](const Inputs& x) { return div(x[0], x[1]); }, {{70001}, {70001}});
  same("gelu", [](const Inputs& x) { return gelu(x[0]); }, {{70001}});
  same("exp, log, tanh, sqrt", [](const Inputs& x) { return tanh(log(exp(sqrt(x[0])))); }, {{50003}});
  same("relu of a view", [](const Inputs& x) { return relu(transpose(x[0], 0, 1)); }, {{257, 199}});
}

TEST(EveryThreadCount, RowsAndColumns) {
  same("layer norm", [](const Inputs& x) { return layer_norm(x[0], x[1], x[2]); }, {{301, 130}, {130}, {130}});
  same("softmax", [](const Inputs& x) { return softmax(x[0]); }, {{301, 130}});
  same("one long row", [](const Inputs& x) { return softmax(x[0]); }, {{1, 40001}});
  same("sum down", [](const Inputs& x) { return sum(x[0], {0}); }, {{1001, 67}});
  same("sum across", [](const Inputs& x) { return sum(x[0], {1}); }, {{1001, 67}});
  same("mean of outer and inner", [](const Inputs& x) { return mean(x[0], {0, 2}); }, {{60, 30, 40}});
  same("sum of all", [](const Inputs& x) { return sum(x[0]); }, {{70001}});
}

TEST(EveryThreadCount, CrossEntropyEmbeddingDropout) {
  std::vector<int32_t> index(600);
  for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int32_t>(i * i % 91);
  same("cross entropy", [&](const Inputs& x) { return cross_entropy(x[0], Tensor::of(index, {600})); }, {{600, 91}});
  same("embedding", [&](const Inputs& x) { return embedding(x[0], Tensor::of(index, {20, 30})); }, {{91, 130}});
  same("dropout",
       [&](const Inputs& x) {
         WithRandom with({1, 2, std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{5, 6, 7, 8})});
         return dropout(x[0], 0.3, 11);
       },
       {{4, 90, 130}});
}

TEST(EveryThreadCount, MatrixProducts) {
  for (const auto& [m, n, k] :
       {std::tuple{130, 70, 500}, std::tuple{5, 333, 1200}, std::tuple{600, 7, 90}, std::tuple{1, 1, 3000}})
    same("matmul", [](const Inputs& x) { return matmul(x[0], x[1]); }, {{m, k}, {k, n}});
  same("linear", [](const Inputs& x) { return linear(x[0], x[1], x[2]); }, {{3, 50, 130}, {190, 130}, {190}});
  same("feed forward", [](const Inputs& x) { return feed_forward(x[0], x[1], x[2], x[3], x[4]); },
       {{3, 50, 30}, {110, 30}, {110}, {20, 110}, {20}});
  same("batched", [](const Inputs& x) { return matmul(x[0], transpose(x[1], 1, 2)); }, {{7, 40, 60}, {7, 50, 60}});
  same("in fp64", [](const Inputs& x) { return matmul(x[0], x[1]); }, {{60, 200}, {200, 50}},
       {DType::kFloat64, DType::kFloat16});
}

TEST(EveryThreadCount, ImagesAndAttention) {
  same("conv2d", [](const Inputs& x) { return conv2d(x[0], x[1], x[2]); }, {{5, 14, 13, 3}, {20, 3, 3, 3}, {20}});
  same("conv2d with stride and padding",
       [](const Inputs& x) { return conv2d(x[0], x[1], Tensor(), {.stride = 2, .padding = 1}); },
       {{3, 15, 16, 8}, {33, 5, 3, 8}});
  same("conv2d of one image", [](const Inputs& x) { return conv2d(x[0], x[1], Tensor()); },
       {{1, 20, 20, 16}, {3, 3, 3, 16}});
  same("max pool", [](const Inputs& x) { return max_pool2d(x[0], 3, 2); }, {{5, 15, 16, 20}});
  same("attention", [](const Inputs& x) { return causal_attention(x[0], 3); }, {{2, 150, 3 * 3 * 20}});
  same("attention of groups in a window", [](const Inputs& x) { return causal_attention(x[0], x[1], x[2], 40); },
       {{2, 150, 4, 20}, {2, 150, 2, 20}, {2, 150, 2, 20}});
  same("rotary", [](const Inputs& x) { return rotary(x[0], {1, 0.1}); }, {{3, 1500, 3, 4}});
  same("attention of one head", [](const Inputs& x) { return causal_attention(x[0], 1); }, {{1, 65, 3 * 8}});
}

// The kernels of gradient sums, norms and initial values, well beyond what one thread takes at a time.
TEST(EveryThreadCount, GradientSumsNormsAndInitialValues) {
  same_on_each_device([] {
    const int64_t n = 300001;
    Tensor a = random_tensor({n}, 1, -1, 1, DType::kFloat32), b = random_tensor({n}, 2, -1, 1, DType::kFloat32),
           c = Tensor::empty({n}), norms = Tensor::empty({ceil_div(n, kStateChunk)}, DType::kFloat64);
    float *sum = static_cast<float*>(a.write()), *out = static_cast<float*>(c.write());
    const float* other = static_cast<const float*>(b.read());
    current_stream().enqueue([=, chunks = static_cast<double*>(norms.write())](Parallel& p) {
      kernels(p).tree_add(p, sum, other, n);
      kernels(p).chunk_norms(p, sum, n, chunks);
    });
    fill_initial(Init::normal(0.1), 3, "w", 5, n + 5, out);
    current_stream().synchronize();
    return Values{a.to_vector(), norms.to_vector(), c.to_vector()};
  });
}

// The rows and columns of a product may be cut anywhere, with or without a bias or something to add to.
TEST(Products, DoNotDependOnHowTheyAreCut) {
  const int64_t m = 97, n = 83, k = 801;  // k beyond one block
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64})
    for (bool accumulate : {false, true}) {
      const Tensor a = random_tensor({m, k}, 1, -1, 1, dtype), b = random_tensor({k, n}, 2, -1, 1, dtype),
                   bias = random_tensor({n}, 3, -1, 1, dtype), start = random_tensor({m, n}, 4, -1, 1, dtype);
      const Tensor whole = Tensor::empty({m, n}, dtype);
      raw::copy(whole, start);
      raw::gemm(whole, a, b, accumulate ? Tensor() : bias, accumulate);
      const auto expected = whole.to_vector();
      for (const auto& [i0, i1, j0, j1] :
           {std::tuple{0, 1, 0, 83}, std::tuple{3, 97, 5, 6}, std::tuple{40, 77, 30, 83}, std::tuple{96, 97, 82, 83}}) {
        // An operand's memory order does not matter either: each also as a transposed matrix.
        const Tensor bt = raw::contiguous(b.transpose(0, 1)).transpose(0, 1);
        const Tensor at_T = raw::contiguous(a.transpose(0, 1)).transpose(0, 1);
        for (const auto& [left, right] : {std::pair{a, b}, std::pair{a, bt}, std::pair{at_T, b}, std::pair{at_T, bt}}) {
          const Tensor part = raw::contiguous(start.slice(0, i0, i1).slice(1, j0, j1));
          const Tensor out = Tensor::empty(part.shape(), dtype);
          raw::copy(out, part);
          raw::gemm(out, left.slice(0, i0, i1), right.slice(1, j0, j1),
                    accumulate ? Tensor() : raw::contiguous(bias.slice(0, j0, j1)), accumulate);
          const auto got = out.to_vector();
          size_t at = 0;
          for (int64_t i = i0; i < i1; ++i)
            for (int64_t j = j0; j < j1; ++j, ++at)
              ASSERT_EQ(got[at], expected[static_cast<size_t>(i * n + j)]) << to_text(dtype) << " " << i << ", " << j;
        }
      }
    }
}

// fp16 is converted exactly and summed in fp32: a product is that of the same values in fp32. Of bf16 the order of sums
// is another (product_test). Both are rounded once, at the end.
TEST(Products, OfLowPrecisionAreRoundedOnce) {
  const int64_t m = 37, n = 83, k = 801;
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const Tensor a = random_tensor({m, k}, 1, -1, 1, dtype), b = random_tensor({k, n}, 2, -1, 1, dtype),
                 bias = random_tensor({n}, 3, -1, 1, dtype);
    auto wide = [](const Tensor& t) { return raw::cast(t, DType::kFloat32); };
    const Tensor of_wide = Tensor::empty({m, n}), in_fp32 = Tensor::empty({m, n}), low = Tensor::empty({m, n}, dtype);
    raw::gemm(of_wide, wide(a), wide(b), wide(bias));
    raw::gemm(in_fp32, a, b, bias);
    raw::gemm(low, a, raw::contiguous(b.transpose(0, 1)).transpose(0, 1), bias);
    if (dtype == DType::kFloat16) {
      EXPECT_EQ(in_fp32.to_vector(), of_wide.to_vector());
    }
    EXPECT_EQ(low.to_vector(), raw::cast(in_fp32, dtype).to_vector()) << to_text(dtype);
  }
}

TEST(Products, WithEpiloguesArePassesToTheBit) {
  const int64_t rows = 301, in = 83, out = 97;
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    const Tensor x = random_tensor({rows, in}, 1, -1, 1, dtype), w = random_tensor({in, out}, 2, -1, 1, dtype),
                 bias = random_tensor({out}, 3, -1, 1, dtype), g = random_tensor({rows, out}, 4, -1, 1, dtype);
    auto make = [&](int64_t n) { return Tensor::empty({rows, n}, dtype); };
    for (const Tensor& b : {bias, Tensor()}) {
      const Tensor pre = make(out), y = make(out), expected_pre = make(out), expected = make(out);
      raw::gemm_gelu(y, pre, x, w, b);
      raw::gemm(expected_pre, x, w, b);
      raw::pointwise(PointwiseOp::kGelu, {expected}, {expected_pre});
      testing::expect_equal_bits({pre.to_vector(), y.to_vector()}, {expected_pre.to_vector(), expected.to_vector()},
                                 str("gelu in ", dtype));
    }
    const Tensor dpre = make(in), product = make(in), expected = make(in);
    raw::gemm_gelu_backward(dpre, g, w.transpose(0, 1), x);
    raw::gemm(product, g, w.transpose(0, 1));
    raw::pointwise(PointwiseOp::kGeluBackward, {expected}, {product, x});
    testing::expect_equal_bits({dpre.to_vector()}, {expected.to_vector()}, str("backward in ", dtype));
    for (DType to : {dtype, DType::kFloat32})
      for (bool add_weight : {false, true})
        for (bool add_bias : {false, true}) {
          auto targets = [&] {
            return std::pair{random_tensor({out, in}, 5, -1, 1, to), random_tensor({out}, 6, -1, 1, to)};
          };
          const auto [dw, db] = targets();
          raw::linear_gradients({dw, add_weight}, {db, add_bias}, g, x);
          const auto [expected_dw, expected_db] = targets();
          raw::gemm(expected_dw, g.transpose(0, 1), x, {}, add_weight);
          raw::sum_dims(expected_db, g, {0}, add_bias);
          testing::expect_equal_bits({dw.to_vector(), db.to_vector()},
                                     {expected_dw.to_vector(), expected_db.to_vector()},
                                     str("gradients of ", dtype, " in ", to));
        }
  }
}

TEST(Products, OfNothingAreZeroOrTheBias) {
  const Tensor c = Tensor::full({2, 3}, 9), bias = Tensor::of(std::vector<float>{1, 2, 3}, {3});
  raw::gemm(c, Tensor::zeros({2, 0}), Tensor::zeros({0, 3}), bias);
  EXPECT_EQ(c.to_vector(), (std::vector<double>{1, 2, 3, 1, 2, 3}));
  raw::gemm(c, Tensor::zeros({2, 0}), Tensor::zeros({0, 3}));
  EXPECT_EQ(c.to_vector(), std::vector<double>(6, 0.0));
  EXPECT_EQ(matmul(Tensor::zeros({0, 4}), Tensor::zeros({4, 3})).shape(), (Shape{0, 3}));
}

// Rows of a batch do not see their neighbours: micro-batches may be cut anywhere.
TEST(Rows, AreIndependentOfTheirNeighbours) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const Tensor x = random_tensor({40, 67}, 1, -2, 2, dtype), w = random_tensor({67}, 2, -1, 1, dtype);
    const Tensor weight = random_tensor({50, 67}, 3, -1, 1, dtype);
    for (const Function& f : {Function([&](const Inputs& in) { return layer_norm(in[0], w, w); }),
                              Function([&](const Inputs& in) { return softmax(in[0]); }),
                              Function([&](const Inputs& in) { return linear(in[0], weight); })}) {
      const auto whole = f({x}).to_vector(), part = f({x.slice(0, 13, 14)}).to_vector();
      for (size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], whole[13 * part.size() + i]) << to_text(dtype);
    }
  }
}

TEST(Attention, LooksBackOnly) {
  Tensor x = random_tensor({1, 100, 24}, 1, -1, 1, DType::kFloat32);
  const auto before = causal_attention(x, 2).to_vector();
  raw::fill(x.slice(1, 60, 100), 5);
  const auto after = causal_attention(x, 2).to_vector();
  for (size_t i = 0; i < 60 * 8; ++i) ASSERT_EQ(after[i], before[i]) << "time " << i / 8;
  EXPECT_NE(after, before);
}

using AttentionValues = std::vector<std::vector<double>>;

// Result and gradients.
AttentionValues attended(const Tensor& q, const Tensor& k, const Tensor& v, int64_t window) {
  std::vector<Tensor> in{q.detach(), k.detach(), v.detach()};
  for (Tensor& t : in) require_grad(t);
  const Tensor y = causal_attention(in[0], in[1], in[2], window);
  backward(sum(mul(y, y)));
  return {y.to_vector(), grad_of(in[0]).to_vector(), grad_of(in[1]).to_vector(), grad_of(in[2]).to_vector()};
}

TEST(Attention, OfPartsHasTheBitsOfPacked) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const int64_t batch = 2, time = 100, heads = 3, dim = 8;
    Tensor qkv = random_tensor({batch, time, 3, heads, dim}, 1, -1, 1, dtype);
    require_grad(qkv);
    const Tensor y = causal_attention(reshape(qkv, {batch, time, 3 * heads * dim}), heads);
    backward(sum(mul(y, y)));
    auto part = [&](const Tensor& t, int64_t i) { return t.detach().slice(2, i, i + 1).permute({0, 1, 3, 4, 2}); };
    auto as_heads = [&](int64_t i) { return raw::contiguous(part(qkv, i)).reshape({batch, time, heads, dim}); };
    const AttentionValues got = attended(as_heads(0), as_heads(1), as_heads(2), 0);
    EXPECT_EQ(got[0], y.to_vector());
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_EQ(got[static_cast<size_t>(i + 1)], raw::contiguous(part(grad_of(qkv), i)).to_vector()) << "part " << i;
  }
}

TEST(Attention, ShownAllKeysByItsWindowHasTheSameBits) {
  const Tensor q = random_tensor({1, 70, 2, 8}, 1, -1, 1, DType::kFloat32),
               k = random_tensor({1, 70, 1, 8}, 2, -1, 1, DType::kFloat32),
               v = random_tensor({1, 70, 1, 8}, 3, -1, 1, DType::kFloat32);
  EXPECT_EQ(attended(q, k, v, 70), attended(q, k, v, 0));
  EXPECT_EQ(attended(q, k, v, 1000), attended(q, k, v, 0));
  EXPECT_NE(attended(q, k, v, 69), attended(q, k, v, 0));
}

// Each key beyond the window, each value beyond it, and each other group's head is without effect.
TEST(Attention, SeesItsWindowAndItsGroupOnly) {
  const int64_t time = 200, window = 5, changed = 90;
  const Tensor q = random_tensor({1, time, 4, 4}, 1, -1, 1), k = random_tensor({1, time, 2, 4}, 2, -1, 1),
               v = random_tensor({1, time, 2, 4}, 3, -1, 1);
  const auto before = causal_attention(q, k, v, window).to_vector();
  for (const Tensor* t : {&k, &v}) {
    const auto kept = t->to_vector();
    for (int64_t i = 0; i < 4; ++i) t->mutable_values<double>()[(changed * 2 + 1) * 4 + i] += 1;  // of the second group
    const auto after = causal_attention(q, k, v, window).to_vector();
    for (int64_t at = 0; at < time; ++at)
      for (int64_t h = 0; h < 4; ++h) {
        bool same = true;
        for (int64_t i = 0; i < 4; ++i) {
          const auto e = static_cast<size_t>((at * 4 + h) * 4 + i);
          same &= before[e] == after[e];
        }
        EXPECT_EQ(same, h < 2 || at < changed || at >= changed + window) << "position " << at << ", head " << h;
      }
    for (size_t i = 0; i < kept.size(); ++i) t->mutable_values<double>()[i] = kept[i];
  }
}

TEST(Attention, OfHeadsThatDoNotFitIsRefused) {
  const Tensor q = Tensor::zeros({1, 3, 4, 2});
  for (const Tensor& k : {Tensor::zeros({1, 3, 3, 2}), Tensor::zeros({1, 2, 2, 2}), Tensor::zeros({1, 3, 2, 3}),
                          Tensor::zeros({1, 3, 2, 2}, DType::kBFloat16)})
    EXPECT_THROW(causal_attention(q, k, k), Error) << to_text(k);
}

TEST(Attention, MemoryGrowsLinearlyWithTime) {
  auto peak = [](int64_t time) {
    Tensor x = random_tensor({1, time, 3 * 64}, 1, -1, 1, DType::kFloat32);
    require_grad(x);
    reset_peak_bytes();
    const int64_t base = allocator_stats().bytes_in_use;
    backward(sum(causal_attention(x, 2)));
    return static_cast<double>(allocator_stats().peak_bytes - base);
  };
  peak(2048);  // scratch is kept between calls: let it grow first
  const double at_512 = peak(512), at_1024 = peak(1024), at_2048 = peak(2048);
  EXPECT_LT(at_1024, 2.1 * at_512);
  EXPECT_LT(at_2048, 2.1 * at_1024);
  // Scratch itself, of a thread that has none yet.
  double scratch[2];
  for (int i = 0; i < 2; ++i) std::thread([&, i] { scratch[i] = peak(i ? 2048 : 1024); }).join();
  EXPECT_LT(scratch[1], 2.1 * scratch[0]);
}

}  // namespace
}  // namespace lockstep::kernels_test
