// Attention and convolution by cuDNN, pretended by the CPU's kernels: what is asked of it, in which portions, what is
// taken where it refuses, and what is said of it.
#include "core/device/cuda/libraries/dnn.h"

#include <gtest/gtest.h>

#include "core/base/partition.h"
#include "core/device/cuda/kernels/attention_mask.h"
#include "core/device/cuda/libraries/attention_portions.h"
#include "core/device/cuda/runtime/choices.h"
#include "core/device/cuda/runtime/mask_proof.h"
#include "core/device/cuda/runtime/switches.h"
#include "core/device/thread_pool.h"
#include "core/kernels/attention/kind_of.h"
#include "core/kernels/kernels.h"
#include "tests/support/cuda_arrays.h"
#include "tests/support/fake_dnn.h"

namespace lockstep::cuda::cuda_dnn_test {
namespace {

using namespace testing;

std::vector<std::string>& warnings() {
  static std::vector<std::string> lines;
  return lines;
}

class CudaDnn : public ::testing::Test {
 protected:
  CudaDnn() {
    const int handles = fake_dnn().handles, made = fake_dnn().made;  // idle ones stay
    fake_dnn() = {};
    fake_dnn().handles = handles, fake_dnn().made = made;
    switches() = {};
    warnings().clear();
    set_choice_warning([](const std::string& line) { warnings().push_back(line); });
  }
  ~CudaDnn() override {
    EXPECT_TRUE(fake_dnn().misuse.empty()) << fake_dnn().misuse.front();
    set_choice_warning(nullptr);
    attention_score_bytes() = int64_t(1) << 30;
  }

  // A number that no other test's shapes have: plans stay with handles, and warnings with the process.
  static int64_t fresh_time() {
    static int64_t time = 16;
    return time += 4;
  }
  static AttentionArgs attention_args(int64_t batch, int64_t heads, int64_t kv_heads) {
    AttentionArgs a;
    a.batch = batch, a.time = fresh_time(), a.heads = heads, a.kv_heads = kv_heads, a.dim = 16;
    a.dtype = DType::kBFloat16, a.scale = 0.25;
    return a;
  }
  static Attended by_dnn(const AttentionArgs& a) {
    const auto queue = make_queue(132);
    queue->trust_masks({kind_of(a)});
    return attend(*queue, attention, attention_backward, a, 1);
  }
  static Attended by_cpu(const AttentionArgs& a) {
    ThreadPool cpu(1);
    return attend(cpu, kernels().attention, kernels().attention_backward, a, 1);
  }
  static void expect_equal(const AttentionArgs& a) {
    const Attended expected = by_cpu(a), actual = by_dnn(a);
    EXPECT_EQ(actual.y, expected.y);
    EXPECT_EQ(actual.lse, expected.lse);
    EXPECT_EQ(actual.dqkv, expected.dqkv);
  }
  static int count(const std::vector<std::string>& all, const std::string& one) {
    return static_cast<int>(std::count(all.begin(), all.end(), one));
  }
};

TEST_F(CudaDnn, AttentionIsTheCpus) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16})
    for (const bool causal : {true, false})
      for (const int64_t window : {0, 5}) {
        if (window > 0 && !causal) continue;
        AttentionArgs a = attention_args(2, 4, 2);
        a.dtype = dtype, a.causal = causal, a.window = window;
        SCOPED_TRACE(str(dtype, causal ? ", causal" : "", ", window ", window));
        expect_equal(a);
      }
  EXPECT_EQ(count(fake_dnn().ran, "attention by AUTO"), 6);
  EXPECT_EQ(count(fake_dnn().ran, "attention's gradient"), 6);
  EXPECT_TRUE(warnings().empty()) << warnings().front();
}

TEST_F(CudaDnn, TheGradientTakesSamplesAndThenHeadsInPortions) {
  struct Case {
    int64_t batch, heads, kv_heads, heads_that_fit;
    int runs;
    int64_t most;  // heads of queries at once, over all samples
  };
  for (const Case& c : {Case{3, 2, 2, 100, 1, 6}, Case{4, 2, 2, 4, 2, 4}, Case{5, 2, 2, 4, 3, 4},
                        Case{2, 4, 4, 4, 2, 4}, Case{2, 8, 8, 3, 6, 3}, Case{1, 8, 2, 4, 2, 4}, Case{2, 8, 4, 5, 4, 4},
                        Case{1, 8, 2, 1, 2, 4}, Case{1, 3, 3, 1, 3, 1}}) {
    SCOPED_TRACE(str(c.batch, " samples, ", c.heads, " heads, ", c.kv_heads, " of keys, ", c.heads_that_fit, " fit"));
    const AttentionArgs a = attention_args(c.batch, c.heads, c.kv_heads);
    const int64_t of_head = round_up(a.time, 128) * round_up(a.time, 128) * 2;
    attention_score_bytes() = c.heads_that_fit * of_head;
    fake_dnn().ran.clear(), fake_dnn().most_workspace = 0;
    expect_equal(a);
    EXPECT_EQ(count(fake_dnn().ran, "attention's gradient"), c.runs);
    EXPECT_EQ(fake_dnn().most_workspace, c.most * of_head);
  }
}

TEST_F(CudaDnn, HeadsStayTogetherWhereAPortionWouldNotBeAligned) {
  AttentionArgs a = attention_args(1, 2, 2);
  a.dim = 12;
  attention_score_bytes() = 1;
  expect_equal(a);
  EXPECT_EQ(count(fake_dnn().ran, "attention's gradient"), 1);
  a = attention_args(5, 3, 3);
  a.time -= 1;  // so do samples, but for four of them
  expect_equal(a);
  EXPECT_EQ(count(fake_dnn().ran, "attention's gradient"), 1 + 2);
}

TEST_F(CudaDnn, WithoutTheChosenNodeTheCompositeOneServes) {
  fake_dnn().refused = {"attention by AUTO"};
  const AttentionArgs a = attention_args(2, 2, 2);
  expect_equal(a);
  EXPECT_EQ(count(fake_dnn().ran, "attention by COMPOSITE"), 1);
  EXPECT_TRUE(warnings().empty()) << warnings().front();
  EXPECT_NE(algorithm_choices().find("engine of attention by COMPOSITE"), std::string::npos);
}

TEST_F(CudaDnn, WithoutAnEngineKernelsOfOurOwnServeAndAreWarnedOf) {
  fake_dnn().refused = {"attention by AUTO", "attention by COMPOSITE", "attention's gradient"};
  const AttentionArgs a = attention_args(2, 4, 2);
  for (int again = 0; again < 2; ++again) {
    const Attended expected = by_cpu(a), actual = by_dnn(a);
    expect_near("y", actual.y, expected.y, tolerance_of(a.dtype));
    expect_near("dqkv", actual.dqkv, expected.dqkv, 4 * tolerance_of(a.dtype));
  }
  EXPECT_TRUE(fake_dnn().ran.empty());
  ASSERT_EQ(warnings().size(), 2u);
  EXPECT_NE(warnings()[0].find(str("attention of 2 x ", a.time,
                                   " x 4 x 16, 2 heads of keys, bf16: kernels of our own, as "
                                   "cuDNN has none: no engine of attention by AUTO on this GPU")),
            std::string::npos)
      << warnings()[0];
}

TEST_F(CudaDnn, WhatItIsNotAskedForIsWarnedOfAtOnce) {
  const auto warned = [](AttentionArgs a, const char* what) {
    SCOPED_TRACE(what);
    warnings().clear();
    a.dtype = DType::kBFloat16;
    for (int queue = 0; queue < 2; ++queue) attend(*make_queue(132), attention, attention_backward, a, 1);
    ASSERT_EQ(warnings().size(), a.starts ? 1u : 2u);
    EXPECT_NE(warnings()[0].find(str("with ", what, ": kernels of our own")), std::string::npos) << warnings()[0];
    warnings().clear();
    a.dtype = DType::kFloat32;  // of which cuDNN has none, and nobody expects it
    by_dnn(a);
    EXPECT_TRUE(warnings().empty()) << warnings().front();
  };
  AttentionArgs a = attention_args(2, 2, 2);
  const std::vector<int32_t> documents(static_cast<size_t>(2 * a.time)), lengths{3, 5}, starts{0, 0};
  a.documents = documents.data();
  warned(a, "several documents in a row");
  a = attention_args(2, 2, 2), a.lengths = lengths.data();
  warned(a, "samples of several lengths");
  a = attention_args(2, 2, 2), a.starts = starts.data();
  warned(a, "queries that follow cached keys");
  const std::vector<int64_t> samples{1, 2};
  a = attention_args(2, 2, 2), a.drop_probability = 0.5, a.samples = samples.data();
  warned(a, "dropout by our random numbers");
  EXPECT_TRUE(fake_dnn().ran.empty());
}

// Rows of several documents, of which the last may be padding.
std::vector<int32_t> documents_of(const AttentionArgs& a) {
  std::vector<int32_t> out;
  for (int64_t s = 0; s < a.batch; ++s)
    for (int64_t t = 0; t < a.time; ++t) out.push_back(static_cast<int32_t>(t / (s + 3)));
  return out;
}

TEST_F(CudaDnn, DocumentsAndLengthsAreAMaskOnceItIsTrusted) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16})
    for (const bool causal : {true, false}) {
      AttentionArgs a = attention_args(3, 4, 2);
      a.time -= causal ? 1 : 0;  // rows that are no multiple of 16 bytes
      a.dtype = dtype, a.causal = causal, a.window = causal ? 5 : 0;
      SCOPED_TRACE(str(dtype, causal ? ", causal" : ""));
      const std::vector<int32_t> documents = documents_of(a), lengths{3, 9, static_cast<int32_t>(a.time)};
      a.documents = documents.data();
      expect_equal(a);
      a.documents = nullptr, a.lengths = lengths.data(), a.window = 0;  // a window may leave nothing of a length
      expect_equal(a);
    }
  EXPECT_EQ(count(fake_dnn().ran, "masked attention by AUTO"), 8);
  EXPECT_EQ(count(fake_dnn().ran, "masked attention's gradient"), 8);
  EXPECT_TRUE(warnings().empty()) << warnings().front();
}

TEST_F(CudaDnn, MasksAreMadeForPortionsOfTheSamples) {
  const AttentionArgs shape = attention_args(6, 2, 2);
  const std::vector<int32_t> documents = documents_of(shape);
  AttentionArgs a = shape;
  a.documents = documents.data();
  attention_score_bytes() = 2 * mask_bytes(shape) / 6;
  expect_equal(a);
  EXPECT_EQ(count(fake_dnn().ran, "masked attention by AUTO"), 3);
  a.time = fresh_time(), fake_dnn().ran.clear();
  const std::vector<int32_t> longer = documents_of(a);
  a.documents = longer.data();
  attention_score_bytes() = 1;  // not even one fits
  const Attended expected = by_cpu(a), actual = by_dnn(a);
  expect_near("y", actual.y, expected.y, tolerance_of(a.dtype));
  EXPECT_TRUE(fake_dnn().ran.empty());
  ASSERT_EQ(warnings().size(), 2u);
  EXPECT_NE(warnings()[0].find("with a mask that is too large"), std::string::npos) << warnings()[0];
}

TEST_F(CudaDnn, AGradientOfMasksThatItDoesNotHaveIsOurs) {
  fake_dnn().refused = {"masked attention's gradient"};  // as on sm_100, where it is to be deterministic
  AttentionArgs a = attention_args(2, 2, 2);
  const std::vector<int32_t> documents = documents_of(a);
  a.documents = documents.data();
  const Attended expected = by_cpu(a), actual = by_dnn(a);
  EXPECT_EQ(actual.y, expected.y);
  expect_near("dqkv", actual.dqkv, expected.dqkv, 4 * tolerance_of(a.dtype));
  EXPECT_EQ(fake_dnn().ran, std::vector<std::string>{"masked attention by AUTO"});
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_NE(warnings()[0].find(", masked, bf16: kernels of our own, as cuDNN has none"), std::string::npos);
}

TEST_F(CudaDnn, MasksAreTrustedAfterAProof) {
  const MaskedAttention causal{DType::kBFloat16, 16, 2, 0, true};
  const std::vector<MaskedAttention> kinds{
      causal, {DType::kFloat16, 24, 1, 0, false}, {DType::kBFloat16, 16, 1, 20, true}};
  for (const MaskedAttention& kind : kinds) {
    const auto queue = make_queue(132);
    EXPECT_EQ(doubt_of_masks(*queue, kind), "");
    EXPECT_TRUE(queue->trusted_masks().empty()) << "the caller decides what to trust";
  }
  EXPECT_EQ(count(fake_dnn().ran, "masked attention by AUTO"), 6) << "three kinds, twice";
  EXPECT_EQ(count(fake_dnn().ran, "masked attention's gradient"), 6);
  const auto doubt = [](const MaskedAttention& kind) { return doubt_of_masks(*make_queue(132), kind); };
  fake_dnn().ignores_masks = true;
  EXPECT_NE(doubt(causal).find("bf16, heads of 16, causal: y, element "), std::string::npos) << doubt(causal);
  fake_dnn().ignores_masks = false;
  fake_dnn().ignores_windows = true;
  EXPECT_EQ(doubt(causal), "");
  EXPECT_NE(doubt(kinds[2]).find("bf16, heads of 16, causal, window 20: y, element "), std::string::npos);
  fake_dnn().ignores_windows = false;
  fake_dnn().spoils_next = 2;  // the second time
  EXPECT_EQ(doubt(causal), "bf16, heads of 16, causal: other bits when it was repeated");
  EXPECT_EQ(fake_dnn().spoils_next, 0);
}

TEST_F(CudaDnn, AKindOfMaskedAttentionThatWasNotProvenIsOurs) {
  AttentionArgs a = attention_args(2, 4, 2);
  const std::vector<int32_t> documents = documents_of(a);
  a.documents = documents.data();
  const MaskedAttention kind = kind_of(a);
  const auto ran_with = [&](const MaskedAttention& trusted) {
    fake_dnn().ran.clear();
    const auto queue = make_queue(132);
    queue->trust_masks({trusted});
    attend(*queue, attention, attention_backward, a, 1);
    return std::ssize(fake_dnn().ran);
  };
  EXPECT_EQ(ran_with(kind), 2);
  EXPECT_EQ(ran_with({DType::kFloat16, kind.dim, kind.group, kind.window, kind.causal}), 0);
  EXPECT_EQ(ran_with({kind.dtype, kind.dim + 8, kind.group, kind.window, kind.causal}), 0);
  EXPECT_EQ(ran_with({kind.dtype, kind.dim, kind.group + 1, kind.window, kind.causal}), 0);
  EXPECT_EQ(ran_with({kind.dtype, kind.dim, kind.group, 8, kind.causal}), 0);
  EXPECT_EQ(ran_with({kind.dtype, kind.dim, kind.group, kind.window, !kind.causal}), 0);
}

TEST_F(CudaDnn, AHandleAndItsPlansOutliveAQueueAndBelongToOne) {
  const AttentionArgs a = attention_args(1, 2, 2);
  by_dnn(a);
  const int made = fake_dnn().made;
  fake_dnn().built.clear();
  for (int queue = 0; queue < 3; ++queue) by_dnn(a);
  EXPECT_EQ(fake_dnn().made, made);
  EXPECT_TRUE(fake_dnn().built.empty()) << fake_dnn().built.front();
  const auto first = make_queue(132), second = make_queue(132);
  const auto use = [&](CudaQueue& queue) { attend(queue, attention, attention_backward, a, 1); };
  use(*first), use(*second), use(*first);
  EXPECT_EQ(fake_dnn().made, made + 1);  // each has its own
  EXPECT_EQ(fake_dnn().handles, fake_dnn().made);
}

TEST_F(CudaDnn, ConvolutionsAreTheCpus) {
  std::mt19937 random(1);
  ConvArgs a;
  a.images = 2, a.height = 9, a.width = 7, a.in_channels = 6, a.out_channels = 4, a.kernel_h = a.kernel_w = 3;
  a.padding = 1, a.stride = 2, a.groups = 2, a.out_height = 5, a.out_width = 4;
  a.x_dtype = a.weight_dtype = a.y_dtype = a.bias_dtype = DType::kFloat32;
  const int64_t x_size = 2 * 9 * 7 * 6, weight_size = 4 * 3 * 3 * 3, y_size = 2 * 5 * 4 * 4;
  Array x(random, DType::kFloat32, x_size), weight(random, DType::kFloat32, weight_size),
      bias(random, DType::kFloat32, 4);
  Array dy(random, DType::kFloat32, y_size);
  const auto values = [&](Parallel& where, auto forward, auto input, auto weights) {
    Array y(DType::kFloat32, y_size), dx(DType::kFloat32, x_size), dw(DType::kFloat32, weight_size);
    ConvArgs c = a;
    c.x = x.data(), c.weight = weight.data(), c.bias = bias.data(), c.y = y.data();
    forward(where, c);
    c.bias = nullptr, c.y = dy.data(), c.x = dx.data();
    input(where, c);
    c.x = x.data(), c.weight = dw.data();
    weights(where, c);
    return std::vector{y.values(), dx.values(), dw.values()};
  };
  ThreadPool cpu(1);
  const auto expected = values(cpu, kernels().conv, kernels().conv_backward_input, kernels().conv_backward_weight);
  EXPECT_EQ(values(*make_queue(132), conv, conv_backward_input, conv_backward_weight), expected);
  EXPECT_EQ(fake_dnn().ran, (std::vector<std::string>{"convolution and bias", "convolution's input gradient",
                                                      "convolution's weight gradient"}));
  EXPECT_TRUE(warnings().empty());
}

}  // namespace
}  // namespace lockstep::cuda::cuda_dnn_test
