// Cross attention, documents and dropout of attention: values that follow from their definitions, and errors.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/gradcheck.h"

namespace lockstep::attention_test {
namespace {

using testing::random_tensor;

RandomKey key_of(const std::vector<int64_t>& samples) {
  return {1, 2, std::make_shared<const std::vector<int64_t>>(samples)};
}

void expect_near(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.shape(), expected.shape());
  const auto a = got.to_vector(), b = expected.to_vector();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-13) << "element " << i;
}

struct Parts {
  Tensor q, k, v;
  Parts(int64_t time, int64_t keys, DType dtype = DType::kFloat64)
      : q(random_tensor({2, time, 4, 6}, 1, -2, 2, dtype)),
        k(random_tensor({2, keys, 2, 6}, 2, -2, 2, dtype)),
        v(random_tensor({2, keys, 2, 6}, 3, -2, 2, dtype)) {}
};

TEST(CrossAttention, IsSoftmaxOfScoresTimesValues) {
  const Parts p(5, 70);
  const Tensor y = attention(p.q, p.k, p.v);
  for (int sample = 0; sample < 2; ++sample)
    for (int head = 0; head < 4; ++head) {
      const auto of = [&](const Tensor& t, int h) {
        return reshape(slice(slice(t, 0, sample, sample + 1), 2, h, h + 1), {t.dim(1), 6});
      };
      const Tensor scores = affine(matmul(of(p.q, head), transpose(of(p.k, head / 2), 0, 1)), 1 / std::sqrt(6.0));
      expect_near(of(y, head), matmul(softmax(scores), of(p.v, head / 2)));
    }
}

// The last queries of a sequence alone, each sample from a position of its own, see what they see among all.
TEST(CausalAttention, OfTheLastQueriesHasTheBitsOfAll) {
  const NoGrad no_grad;
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16})
    for (const int64_t window : {0, 9, 70}) {
      const Parts p(150, 150, dtype);
      const Tensor all = causal_attention(p.q, p.k, p.v, window);
      for (const int64_t time : {1, 3, 70}) {
        const std::vector<int32_t> starts{67, 20};
        const auto from = [&](const Tensor& t) {
          std::vector<Tensor> parts;
          for (int64_t b = 0; b < 2; ++b) {
            const int64_t begin = starts[static_cast<size_t>(b)];
            parts.push_back(slice(slice(t, 0, b, b + 1), 1, begin, begin + time));
          }
          return concat(parts, 0);
        };
        const Tensor last =
            attention(from(p.q), p.k, p.v, {.causal = true, .window = window, .starts = Tensor::of(starts, {2})});
        EXPECT_EQ(last.to_vector(), from(all).to_vector()) << to_text(dtype) << ", window " << window << ", " << time;
      }
    }
  const Parts p(5, 9);
  EXPECT_THROW(attention(p.q, p.k, p.v, {.starts = Tensor::of(std::vector<int32_t>{0, 4}, {2})}), Error);
  EXPECT_THROW(attention(p.q, p.k, p.v, {.causal = true, .starts = Tensor::of(std::vector<int32_t>{0}, {1})}), Error);
}

// A window over several documents computes what each document computes alone.
TEST(Attention, OfDocumentsIsThatOfEachAlone) {
  const Parts p(80, 80);
  std::vector<int32_t> documents;
  for (int32_t sample = 0; sample < 2; ++sample)
    for (int32_t t = 0; t < 80; ++t) documents.push_back(t < 7 ? 3 : t < 75 ? 1 : 2);
  for (bool causal : {false, true}) {
    std::vector<Tensor> alone;
    for (const auto& [begin, end] : {std::pair{0, 7}, std::pair{7, 75}, std::pair{75, 80}}) {
      const auto of = [begin = begin, end = end](const Tensor& t) { return slice(t, 1, begin, end); };
      alone.push_back(attention(of(p.q), of(p.k), of(p.v), {.causal = causal}));
    }
    expect_near(attention(p.q, p.k, p.v, {.causal = causal, .documents = Tensor::of(documents, {2, 80})}),
                concat(alone, 1));
  }
}

TEST(Attention, OfDocumentsInAWindow) {
  const Parts p(80, 80);
  std::vector<int32_t> documents;
  for (int32_t i = 0; i < 160; ++i) documents.push_back(i % 80 < 33 ? 1 : 2);
  std::vector<Tensor> alone;
  for (const auto& [begin, end] : {std::pair{0, 33}, std::pair{33, 80}}) {
    const auto of = [begin = begin, end = end](const Tensor& t) { return slice(t, 1, begin, end); };
    alone.push_back(causal_attention(of(p.q), of(p.k), of(p.v), 9));
  }
  expect_near(attention(p.q, p.k, p.v, {.causal = true, .window = 9, .documents = Tensor::of(documents, {2, 80})}),
              concat(alone, 1));
}

// With values of 1, a row of the result is the sum of its probabilities: those that are kept, over 1 - p.
TEST(AttentionDropout, DropsTheShareThatItIsGiven) {
  Parts p(256, 64);
  raw::fill(p.q, 0);  // equal probabilities
  raw::fill(p.v, 1);
  WithRandom with(key_of({5, 9}));
  const auto y = attention(p.q, p.k, p.v, {.drop_probability = 0.25, .drop_site = 3}).to_vector();
  double sum = 0, squares = 0;
  for (double v : y) {
    const double kept = v * 0.75 * 64;
    EXPECT_NEAR(kept, std::round(kept), 1e-9);
    sum += v, squares += v * v;
  }
  const double n = static_cast<double>(y.size()), mean = sum / n;
  EXPECT_NEAR(mean, 1, 0.01);
  EXPECT_NEAR(squares / n - mean * mean, 0.25 / 0.75 / 64, 0.001);  // of independent draws
}

// The bits of a sample are the same in any micro-batch, and change with sample, step and site.
TEST(AttentionDropout, IsKeyedBySampleStepAndSite) {
  const Parts p(40, 70, DType::kFloat32);
  const auto run = [&](const RandomKey& key, int first, int count, uint64_t site) {
    WithRandom with(key);
    const auto of = [&](const Tensor& t) { return slice(t, 0, first, first + count); };
    return attention(of(p.q), of(p.k), of(p.v), {.drop_probability = 0.5, .drop_site = site}).to_vector();
  };
  const auto both = run(key_of({5, 9}), 0, 2, 3), first = run(key_of({5}), 0, 1, 3), second = run(key_of({9}), 1, 1, 3);
  auto joined = first;
  joined.insert(joined.end(), second.begin(), second.end());
  EXPECT_EQ(both, joined);
  RandomKey later = key_of({5, 9});
  later.step = 3;
  EXPECT_NE(run(later, 0, 2, 3), both);
  EXPECT_NE(run(key_of({5, 9}), 0, 2, 4), both);
  EXPECT_NE(run(key_of({5, 8}), 0, 2, 3), both);
}

TEST(AttentionDropout, OfProbabilityZeroDrawsNothing) {
  const Parts p(5, 5);
  EXPECT_EQ(attention(p.q, p.k, p.v, {.causal = true}).to_vector(), causal_attention(p.q, p.k, p.v).to_vector());
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const auto message = [](const Parts& p, const AttentionOptions& o) -> std::string {
    try {
      attention(p.q, p.k, p.v, o);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  const Parts self(5, 5), cross(5, 6);
  const Tensor documents = Tensor::of(std::vector<int32_t>(10, 1), {2, 5}),
               lengths = Tensor::of(std::vector<int32_t>{1, 2}, {2});
  const std::string another = "only attention without order and documents takes keys of another length";
  EXPECT_NE(message(cross, {.causal = true}).find(another), std::string::npos) << message(cross, {.causal = true});
  EXPECT_NE(message(cross, {.documents = documents}).find(another), std::string::npos);
  EXPECT_NE(message(self, {.documents = lengths}).find("they are int32 [batch, time], without lengths"),
            std::string::npos);
  EXPECT_NE(
      message(self, {.lengths = lengths, .documents = documents}).find(" with lengths int32[2] on cpu for queries"),
      std::string::npos)
      << message(self, {.lengths = lengths, .documents = documents});
  EXPECT_NE(message(self, {.window = 3}).find(", window 3; it takes"), std::string::npos)
      << message(self, {.window = 3});
  EXPECT_NE(message(self, {.drop_probability = 1}).find("dropout with probability 1"), std::string::npos);
  EXPECT_NE(message(self, {.drop_probability = 0.5}).find("the 0 samples of the micro-batch (WithRandom)"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::attention_test
