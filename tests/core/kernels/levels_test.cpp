// Instruction-set levels: which kernels give equal bits at all of them, which only with fused multiply-add, and how far
// the rest differ.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/device/thread_pool.h"
#include "core/kernels/kernels.h"
#include "core/nn/init.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/gradcheck.h"

namespace lockstep::levels_test {
namespace {

using testing::random_tensor;

std::vector<IsaLevel> levels() {
  std::vector<IsaLevel> out;
  for (IsaLevel level : kIsaLevels)
    if (has_isa_level(level)) out.push_back(level);
  return out;
}

enum class Agreement {
  kAll,    // equal bits at every level
  kFused,  // equal bits at those with fused multiply-add; the generic one differs by rounding
};

void expect_agreement(const char* name, Agreement agreement, double tolerance,
                      const std::function<std::vector<double>(IsaLevel)>& run) {
  std::vector<std::vector<double>> results;
  for (IsaLevel level : levels()) results.push_back(run(level));
  for (size_t l = 1; l < results.size(); ++l) {
    // The neighbour below, except that generic counts only where all agree.
    const bool bits = agreement == Agreement::kAll || l >= 2;
    for (size_t i = 0; i < results[l].size(); ++i) {
      const double a = results[l - 1][i], b = results[l][i];
      if (bits)
        ASSERT_EQ(memcmp(&a, &b, 8), 0) << name << ", element " << i << " at levels " << l - 1 << " and " << l << ": "
                                        << a << ", " << b;
      else ASSERT_NEAR(a, b, tolerance * (std::abs(a) + 1e-30)) << name << ", element " << i;
    }
  }
}

constexpr double kUlp = 1.2e-7;

TEST(Levels, PointwiseOperations) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16})
    for (const PointwiseInfo& c : kPointwiseOps) {
      // Positive values: no cancellation to make a relative difference meaningless. An odd size: full vectors and a
      // rest.
      const Shape shape{3, 1237};
      Tensor in[3];
      for (int i = 0; i < 3; ++i) in[i] = random_tensor(shape, 5 + static_cast<uint64_t>(i), 0.2, 3, dtype);
      const double scale = dtype == DType::kFloat32 ? 1 : 65536;
      const Agreement agreement = c.ulps == 0 ? Agreement::kAll : Agreement::kFused;
      expect_agreement(c.name, agreement, c.ulps * kUlp * scale, [&](IsaLevel level) {
        const Tensor out = Tensor::empty(shape, dtype);
        PointwiseArgs a = c.ins == 0   ? raw::pointwise_args({out}, {})
                          : c.ins == 1 ? raw::pointwise_args({out}, {in[0]})
                          : c.ins == 2 ? raw::pointwise_args({out}, {in[0], in[1]})
                                       : raw::pointwise_args({out}, {in[0], in[1], in[2]});
        a.scalars[0] = 0.3, a.scalars[1] = 0.7;
        ThreadPool pool(1);
        kernels(level).pointwise(pool, c.op, a);
        return out.to_vector();
      });
    }
}

// Row reductions fold 32 lanes in a fixed tree at every vector width.
TEST(Levels, RowReductionsAndNormsOfGradients) {
  const Tensor x = random_tensor({7, 1003}, 1, -1, 2, DType::kFloat32);
  for (RowOp op : {RowOp::kSum, RowOp::kMax, RowOp::kNormSquared})
    expect_agreement("row reduction", Agreement::kAll, 0, [&](IsaLevel level) {
      const Tensor out = Tensor::empty({7}, op == RowOp::kNormSquared ? DType::kFloat64 : DType::kFloat32);
      RowArgs r;
      r.rows = 7, r.cols = 1003;
      r[ReduceRows::kX] = raw::rows_of(x, r.cols);
      r[ReduceRows::kResult] = raw::write_one_per_row(out);
      ThreadPool pool(1);
      kernels(level).row(pool, op, r);
      return out.to_vector();
    });
  expect_agreement("chunk norms", Agreement::kAll, 0, [&](IsaLevel level) {
    std::vector<double> out(110);
    ThreadPool pool(1);
    kernels(level).chunk_norms(pool, x.values<float>(), 7021, out.data());
    return out;
  });
  expect_agreement("block codes", Agreement::kAll, 0, [&](IsaLevel level) {
    std::vector<uint8_t> codes(7021);
    std::vector<float> scales(110), values = x.flatten().to_vector<float>();
    const BlockCodesArgs a{7021, values.data(), codes.data(), scales.data()};
    ThreadPool pool(1);
    kernels(level).encode_blocks(pool, a);
    kernels(level).decode_blocks(pool, a);
    return std::vector<double>(values.begin(), values.end());
  });
  for (DType coding : {DType::kNf4, DType::kInt8})
    for (DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
      expect_agreement("weight codes", Agreement::kAll, 0, [&](IsaLevel level) {
        std::vector<uint8_t> codes;
        for (int64_t i = 0; i < bytes_of(coding, 7021); ++i) codes.push_back(static_cast<uint8_t>(i * 37 % 251));
        for (int64_t b = 1; b * bytes_of_block(coding) <= std::ssize(codes); ++b) {
          const float scale = 0.37f * static_cast<float>(b);
          std::memcpy(&codes[static_cast<size_t>(b * bytes_of_block(coding)) - sizeof scale], &scale, sizeof scale);
        }
        const Tensor out = Tensor::empty({7021}, type);
        ThreadPool pool(1);
        kernels(level).decode_weight(pool, {7021, coding, type, codes.data(), out.write()});
        return out.to_vector();
      });
  expect_agreement("column sum", Agreement::kAll, 0, [&](IsaLevel level) {
    const Tensor out = Tensor::empty({1003});
    ColumnArgs a;
    a.rows = 7, a.cols = 1003, a.in = x.read(), a.out = out.write();
    ThreadPool pool(1);
    kernels(level).column_sum(pool, a);
    return out.to_vector();
  });
}

// A model begins alike on every machine.
TEST(Levels, InitialValues) {
  for (const Init& init : {Init::normal(0.02), Init::uniform(0.5)})
    expect_agreement("initial values", Agreement::kAll, 0, [&](IsaLevel level) {
      std::vector<float> out(50000);
      const InitialArgs a{
          init.kind == Init::Kind::kNormal, static_cast<float>(init.scale), 7, 11, 3, 50003, out.data()};
      ThreadPool pool(1);
      kernels(level).initial(pool, a);
      return std::vector<double>(out.begin(), out.end());
    });
}

// Each element of a product is one chain over k, so that vector widths agree; without fused multiply-add each step
// rounds twice.
TEST(Levels, MatrixProducts) {
  const Tensor a = random_tensor({37, 900}, 1, 0.1, 1, DType::kFloat32),
               b = random_tensor({900, 45}, 2, 0.1, 1, DType::kFloat32);
  expect_agreement("gemm", Agreement::kFused, 900 * kUlp, [&](IsaLevel level) {
    const Tensor c = Tensor::empty({37, 45});
    GemmArgs g;
    g.m = 37, g.n = 45, g.k = 900;
    g.a = {const_cast<void*>(a.read()), DType::kFloat32, 900, 1, 0};
    g.b = {const_cast<void*>(b.read()), DType::kFloat32, 45, 1, 0};
    g.c = {c.write(), DType::kFloat32, 45, 1, 0};
    ThreadPool pool(1);
    kernels(level).gemm(pool, g);
    return c.to_vector();
  });
}

struct AttentionCase {
  const char* name;
  DType dtype;
  int64_t window = 0;
  bool documents = false;
  double dropped = 0, cap = 0;
  int64_t time = 100, heads = 2, kv_heads = 2;
  int threads = 1;
  int64_t dim = 24;
  std::vector<int32_t> lengths = {};  // of the two samples; then attention is not causal
};

// Results and gradients of attention.
std::vector<double> attention_at(IsaLevel level, const AttentionCase& c) {
  const Tensor qkv = random_tensor({2, c.time, (c.heads + 2 * c.kv_heads) * c.dim}, 1, -1, 1, c.dtype),
               dy = random_tensor({2, c.time, c.heads * c.dim}, 2, -1, 1, c.dtype);
  std::vector<int32_t> documents;
  for (int32_t t = 0; t < 2 * c.time; ++t) documents.push_back(t / 27);
  const std::vector<int64_t> samples{0, 1};
  const Tensor y = Tensor::zeros(dy.shape(), c.dtype),
               lse = Tensor::zeros({2, c.heads, c.time}, raw::statistics_type(qkv)),
               dqkv = Tensor::zeros(qkv.shape(), c.dtype);
  AttentionArgs a;
  a.batch = 2, a.time = c.time, a.heads = c.heads, a.kv_heads = c.kv_heads, a.dim = c.dim, a.scale = 0.2;
  a.causal = c.lengths.empty(), a.dtype = c.dtype, a.window = c.window;
  if (c.documents) a.documents = documents.data();
  if (!c.lengths.empty()) a.lengths = c.lengths.data();
  a.score_cap = c.cap;
  a.drop_probability = c.dropped, a.seed = 3, a.samples = samples.data();
  a.unpack(const_cast<void*>(qkv.read()), dqkv.write());
  a.y = y.write(), a.dy = const_cast<void*>(dy.read()), a.lse = lse.write();
  ThreadPool pool(c.threads);
  kernels(level).attention(pool, a);
  kernels(level).attention_backward(pool, a);
  std::vector<double> out;
  for (const Tensor& t : {y, lse, dqkv})
    for (const double v : t.to_vector()) out.push_back(v);
  return out;
}

// Attention, whose products leave out what causal order masks and whose softmax has its own exponential.
TEST(Levels, Attention) {
  for (const AttentionCase& c :
       {AttentionCase{"causal", DType::kFloat32}, AttentionCase{"window", DType::kFloat32, 13},
        AttentionCase{"documents", DType::kFloat32, 0, true}, AttentionCase{"dropout", DType::kFloat32, 0, false, 0.2},
        AttentionCase{"fp64", DType::kFloat64, 13}, AttentionCase{"capped", DType::kFloat32, 13, false, 0, 1.5},
        AttentionCase{"bf16", DType::kBFloat16},
        AttentionCase{"heads of 128", DType::kFloat32, 0, false, 0, 0, 129, 2, 1, 1, 128},
        AttentionCase{"lengths", DType::kFloat32, 0, false, 0, 0, 100, 2, 2, 1, 24, {37, 90}}}) {
    SCOPED_TRACE(c.name);
    const std::vector<double> generic = attention_at(IsaLevel::kGeneric, c), fused = attention_at(levels().back(), c);
    for (const IsaLevel level : levels())
      if (level != IsaLevel::kGeneric) {
        EXPECT_EQ(attention_at(level, c), fused) << kernels(level).isa;
      }
    for (size_t i = 0; i < fused.size(); ++i)
      ASSERT_NEAR(generic[i], fused[i], c.dtype == DType::kBFloat16 ? 0.05 : 1e-5) << "element " << i;
  }
}

// A window over all keys masks nothing. Under one, each block of queries packs its keys; without, a head packs all
// once.
TEST(Levels, AttentionHasTheSameBitsWhereKeysArePackedOnce) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64})
    for (const int64_t time : {70, 129, 600})  // a last block of few rows; operands of several blocks
      for (const IsaLevel level : levels()) {
        AttentionCase c{"packed once", dtype};
        c.time = time, c.heads = 6, c.kv_heads = 2;
        const std::vector<double> once = attention_at(level, c);
        c.threads = 3;  // heads that share keys are split among them
        EXPECT_EQ(attention_at(level, c), once) << kernels(level).isa << ", " << to_text(dtype) << ", " << time;
        c.window = time;
        EXPECT_EQ(attention_at(level, c), once) << kernels(level).isa << ", " << to_text(dtype) << ", " << time;
      }
}

// A query that sees keys with the scores 0 and x gives the second the weight e^x / (1 + e^x): with the bits of the
// exponential of elements, for numbers below 0 of every size.
TEST(Levels, AttentionsExponentialIsThatOfElements) {
  std::vector<float> scores{0, -0.0f, -1e-45f, -87.33654f, -87.34f, -1e30f, -std::numeric_limits<float>::infinity()};
  for (uint32_t bits = 0x80000000u; bits < 0xC3000000u; bits += 40009) {
    float x;
    memcpy(&x, &bits, 4);
    scores.push_back(x);
  }
  const auto n = static_cast<int64_t>(scores.size());
  const Tensor q = Tensor::full({n}, 1), k = Tensor::zeros({n, 2}), v = Tensor::zeros({n, 2}), y = Tensor::zeros({n}),
               lse = Tensor::zeros({n}), x = Tensor::zeros({n}), e = Tensor::zeros({n});
  for (int64_t i = 0; i < n; ++i) {
    k.mutable_values<float>()[2 * i + 1] = x.mutable_values<float>()[i] = scores[static_cast<size_t>(i)];
    v.mutable_values<float>()[2 * i + 1] = 1;
  }
  for (const IsaLevel level : levels()) {
    AttentionArgs a;
    a.batch = n, a.time = 1, a.keys = 2, a.heads = a.kv_heads = a.dim = 1, a.scale = 1, a.causal = false;
    a.q = {q.write(), 1}, a.k = {k.write(), 1}, a.v = {v.write(), 1}, a.y = y.write(), a.lse = lse.write();
    ThreadPool pool(1);
    kernels(level).attention(pool, a);
    kernels(level).pointwise(pool, PointwiseOp::kExp, raw::pointwise_args({e}, {x}));
    for (int64_t i = 0; i < n; ++i) {
      const float exponential = e.values<float>()[i], expected = exponential * (1.0f / (1.0f + exponential));
      ASSERT_EQ(memcmp(&y.values<float>()[i], &expected, 4), 0)
          << scores[static_cast<size_t>(i)] << " at level " << kernels(level).isa << ": " << y.values<float>()[i]
          << ", " << expected;
    }
  }
}

// Where a query sees one key with the score x, and the logarithm of the sum of its exponentials is given as 0, the
// gradient of the value is e^x of the result's: with the bits of the exponential of elements, for numbers of every
// size.
TEST(Levels, AttentionGradientsExponentialIsThatOfElements) {
  std::vector<float> scores{
      0, -87.33654f, -87.34f, 88.3f, 88.72283f, 88.73f, 1e30f, std::numeric_limits<float>::infinity(), NAN};
  for (const uint32_t sign : {0u, 0x80000000u})
    for (uint32_t bits = 0; bits < 0x7F800000u; bits += 400009) {
      float x;
      const uint32_t signed_bits = sign | bits;
      memcpy(&x, &signed_bits, 4);
      scores.push_back(x);
    }
  const auto n = static_cast<int64_t>(scores.size());
  const Tensor q = Tensor::full({n}, 1), k = Tensor::zeros({n}), v = Tensor::zeros({n}), y = Tensor::zeros({n}),
               dy = Tensor::full({n}, 1), dq = Tensor::zeros({n}), dk = Tensor::zeros({n}), dv = Tensor::zeros({n}),
               lse = Tensor::zeros({n}), e = Tensor::zeros({n});
  for (int64_t i = 0; i < n; ++i) k.mutable_values<float>()[i] = scores[static_cast<size_t>(i)];
  for (const IsaLevel level : levels()) {
    AttentionArgs a;
    a.batch = n, a.time = 1, a.heads = a.kv_heads = a.dim = 1, a.scale = 1, a.causal = false;
    a.q = {q.write(), 1}, a.k = {k.write(), 1}, a.v = {v.write(), 1}, a.y = y.write(), a.dy = dy.write();
    a.dq = {dq.write(), 1}, a.dk = {dk.write(), 1}, a.dv = {dv.write(), 1}, a.lse = lse.write();
    ThreadPool pool(1);
    kernels(level).attention_backward(pool, a);
    kernels(level).pointwise(pool, PointwiseOp::kExp, raw::pointwise_args({e}, {k}));
    for (int64_t i = 0; i < n; ++i) {
      const float found = dv.values<float>()[i], expected = e.values<float>()[i];
      ASSERT_TRUE(memcmp(&found, &expected, 4) == 0 || (std::isnan(found) && std::isnan(expected)))
          << scores[static_cast<size_t>(i)] << " at level " << kernels(level).isa << ": " << found << " and "
          << expected;
    }
  }
}

TEST(Levels, AreNamedAndRefusedWhereTheCpuLacksThem) {
  EXPECT_STREQ(kernels(IsaLevel::kGeneric).isa, "generic");
  if (best_isa_level() >= IsaLevel::kAvx2) {
    EXPECT_STREQ(kernels(IsaLevel::kAvx2).isa, "avx2");
  }
  if (best_isa_level() < IsaLevel::kAvx512) {
    EXPECT_THROW(kernels(IsaLevel::kAvx512), Error);
  }
}

}  // namespace
}  // namespace lockstep::levels_test
