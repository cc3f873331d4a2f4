// Kernels that stand in where cuDNN has none, run by a stand-in for CUDA on the CPU: attention by tiles and convolution
// by patches against the CPU's kernels, for odd sizes and every type; bits that do not depend on the GPU's size.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/device/cuda/kernels/kernels.h"
#include "core/device/cuda/kernels/patch_conv.h"
#include "core/device/cuda/kernels/tiled_attention.h"
#include "core/device/cuda/runtime/queue.h"
#include "core/device/thread_pool.h"
#include "core/kernels/stage.h"
#include "tests/support/cuda_arrays.h"

namespace lockstep::cuda::cuda_fallbacks_test {
namespace {

using namespace testing;
using testing::expect_near;

TEST(TiledAttention, AgreesWithTheCpu) {
  struct Case {
    int64_t batch, time, heads, dim, kv_heads = 0, window = 0;  // no kv_heads: as many as heads
    bool causal = true;
    std::vector<int32_t> lengths = {};
  };
  for (const Case& c : {Case{2, 1, 1, 8},
                        Case{1, 33, 2, 16},
                        Case{2, 70, 3, 20},
                        Case{1, 97, 1, 64},
                        Case{1, 40, 2, 5},
                        Case{1, 35, 1, 128},
                        Case{1, 9, 1, 300},
                        Case{3, 64, 1, 1},
                        Case{0, 4, 1, 8},
                        Case{2, 0, 1, 8},
                        Case{2, 70, 6, 20, 2},
                        Case{2, 33, 4, 8, 1},
                        Case{1, 97, 2, 16, 2, 1},
                        Case{1, 150, 2, 8, 2, 33},
                        Case{2, 100, 4, 12, 2, 50},
                        Case{1, 40, 2, 8, 1, 40},
                        Case{1, 40, 2, 8, 1, 1000},
                        Case{2, 70, 4, 8, 2, 0, false},
                        Case{2, 70, 2, 8, 2, 0, false, {1, 69}},
                        Case{3, 40, 1, 4, 1, 0, false, {40, 33, 32}},
                        Case{2, 70, 2, 8, 2, 0, true, {5, 66}}})
    for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      SCOPED_TRACE(str(c.batch, " x ", c.time, " x ", c.heads, " x ", c.dim, ", ", c.kv_heads,
                       " heads of keys, window ", c.window, " in ", dtype));
      AttentionArgs a;
      a.batch = c.batch, a.time = c.time, a.heads = c.heads, a.dim = c.dim, a.dtype = dtype;
      a.kv_heads = c.kv_heads > 0 ? c.kv_heads : c.heads, a.window = c.window, a.causal = c.causal;
      if (!c.lengths.empty()) a.lengths = c.lengths.data();
      a.scale = 1.0 / std::sqrt(static_cast<double>(c.dim));
      ThreadPool cpu(1);
      const Attended expected = attend(cpu, kernels().attention, kernels().attention_backward, a, 1);
      const Attended actual = attend(*make_queue(132), tiled_attention, tiled_attention_backward, a, 1);
      const double tolerance = tolerance_of(dtype);
      expect_near("y", actual.y, expected.y, tolerance);
      expect_near("lse", actual.lse, expected.lse, dtype == DType::kFloat64 ? 1e-14 : 2e-6);
      expect_near("dqkv", actual.dqkv, expected.dqkv, 4 * tolerance);
      const Attended narrow = attend(*make_queue(1), tiled_attention, tiled_attention_backward, a, 1);
      EXPECT_TRUE(narrow.y == actual.y && narrow.lse == actual.lse && narrow.dqkv == actual.dqkv)
          << "bits change with the GPU's size";
      if (HasFatalFailure()) return;
    }
}

TEST(TiledAttention, KeysDocumentsAndDropoutAgreeWithTheCpu) {
  struct Case {
    int64_t time, keys, heads, kv_heads;
    bool causal = false, documents = false;
    double drop = 0;
    std::vector<int32_t> lengths = {};
    int64_t window = 0;
    std::vector<int32_t> starts = {};
    double cap = 0;
  };
  std::vector<int32_t> documents;
  for (int32_t i = 0; i < 140; ++i) documents.push_back(i % 70 < 3 ? 7 : i / 11);  // 7: in pieces
  const std::vector<int64_t> samples{5, 1'000'000};
  for (const Case& c :
       {Case{9, 70, 2, 2}, Case{70, 33, 4, 2}, Case{1, 40, 1, 1, false, false, 0, {40, 3}},
        Case{70, 70, 2, 1, false, true}, Case{70, 70, 2, 2, true, true}, Case{70, 70, 4, 2, true, false, 0.2},
        Case{70, 70, 2, 2, true, true, 0.5}, Case{34, 67, 2, 1, false, false, 0.3, {1, 66}},
        Case{70, 70, 2, 1, true, true, 0.3, {}, 20}, Case{1, 70, 2, 1, true, false, 0, {}, 0, {0, 69}},
        Case{35, 100, 4, 2, true, false, 0, {}, 0, {64, 7}}, Case{35, 100, 2, 2, true, false, 0, {}, 20, {65, 40}},
        Case{70, 70, 4, 2, true, true, 0.2, {}, 20, {}, 0.7}, Case{35, 100, 2, 2, true, false, 0, {}, 0, {64, 7}, 2}})
    for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      SCOPED_TRACE(str(c.time, " queries, ", c.keys, " keys, dropout ", c.drop, " in ", dtype));
      AttentionArgs a;
      a.batch = 2, a.time = c.time, a.keys = c.keys, a.heads = c.heads, a.kv_heads = c.kv_heads, a.dim = 12;
      a.dtype = dtype, a.causal = c.causal, a.window = c.window, a.scale = 0.3;
      if (!c.lengths.empty()) a.lengths = c.lengths.data();
      if (!c.starts.empty()) a.starts = c.starts.data();
      if (c.documents) a.documents = documents.data();
      a.score_cap = c.cap;
      a.drop_probability = c.drop, a.seed = 1, a.step = 2, a.site = 3, a.samples = samples.data();
      ThreadPool cpu(1);
      const Attended expected = attend(cpu, kernels().attention, kernels().attention_backward, a, 1);
      const Attended actual = attend(*make_queue(132), tiled_attention, tiled_attention_backward, a, 1);
      const double tolerance = tolerance_of(dtype);
      expect_near("y", actual.y, expected.y, tolerance);
      expect_near("lse", actual.lse, expected.lse, dtype == DType::kFloat64 ? 1e-14 : 2e-6);
      expect_near("dqkv", actual.dqkv, expected.dqkv, 4 * tolerance);
      if (HasFatalFailure()) return;
    }
}

// Scores whose exponentials would overflow, and rows of equal ones.
TEST(TiledAttention, LargeScores) {
  AttentionArgs a;
  a.batch = 1, a.time = 70, a.heads = a.kv_heads = 1, a.dim = 16, a.scale = 40;
  ThreadPool cpu(1);
  const Attended expected = attend(cpu, kernels().attention, kernels().attention_backward, a, 3);
  const Attended actual = attend(*make_queue(132), tiled_attention, tiled_attention_backward, a, 3);
  expect_near("y", actual.y, expected.y, 1e-4);
  expect_near("lse", actual.lse, expected.lse, 1e-5);
  expect_near("dqkv", actual.dqkv, expected.dqkv, 1e-3);
}

TEST(TiledAttention, HeadsTooWide) {
  AttentionArgs a;
  a.batch = a.time = a.heads = a.kv_heads = 1, a.dim = 20000;
  try {
    tiled_attention(*make_queue(1), a);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("heads of 20000 elements"), std::string::npos) << error.what();
  }
}

struct Convolved {
  std::vector<double> y, dx, dw;
};

struct ConvKernels {
  void (*forward)(Parallel&, const ConvArgs&);
  void (*input)(Parallel&, const ConvArgs&);
  void (*weight)(Parallel&, const ConvArgs&);
};

struct ConvTypes {
  DType x, weight, gradient;  // of images, weights, and the weights' gradient
};

Convolved convolve(Parallel& where, const ConvKernels& k, ConvArgs a, const ConvTypes& types, bool with_bias,
                   uint32_t seed) {
  std::mt19937 random(seed);
  a.out_height = (a.height + 2 * a.padding - a.dilation * (a.kernel_h - 1) - 1) / a.stride + 1;
  a.out_width = (a.width + 2 * a.padding - a.dilation * (a.kernel_w - 1) - 1) / a.stride + 1;
  const int64_t nx = a.images * a.height * a.width * a.in_channels,
                nw = a.out_channels * a.kernel_h * a.kernel_w * a.in_channels / a.groups,
                ny = a.images * a.out_height * a.out_width * a.out_channels;
  Array x(random, types.x, nx), weight(random, types.weight, nw), bias(random, types.weight, a.out_channels),
      y(types.x, ny), dy(random, types.x, ny), dx(random, types.x, nx), dw(random, types.gradient, nw);
  a.x_dtype = types.x, a.y_dtype = types.x, a.weight_dtype = types.weight;
  a.x = x.data(), a.weight = weight.data(), a.y = y.data();
  ConvArgs b = a;
  if (with_bias) b.bias = bias.data(), b.bias_dtype = types.weight;
  b.accumulate = false;
  k.forward(where, b);
  b = a, b.x = dx.data(), b.y = dy.data();
  k.input(where, b);
  b = a, b.y = dy.data(), b.weight = dw.data(), b.weight_dtype = types.gradient;
  k.weight(where, b);
  return {y.values(), dx.values(), dw.values()};
}

Convolved on_cpu(const ConvArgs& a, const ConvTypes& types, bool with_bias) {
  ThreadPool cpu(1);
  return convolve(cpu, {kernels().conv, kernels().conv_backward_input, kernels().conv_backward_weight}, a, types,
                  with_bias, 5);
}
Convolved by_patches(const ConvArgs& a, const ConvTypes& types, bool with_bias) {
  return convolve(*make_queue(132), {patch_conv, patch_conv_backward_input, patch_conv_backward_weight}, a, types,
                  with_bias, 5);
}

void expect_near(const Convolved& actual, const Convolved& expected, double tolerance) {
  expect_near("y", actual.y, expected.y, tolerance);
  expect_near("dx", actual.dx, expected.dx, tolerance);
  expect_near("dw", actual.dw, expected.dw, tolerance);
}

TEST(PatchConv, AgreesWithTheCpu) {
  struct Case {
    int64_t images, height, width, in, out, kernel_h, kernel_w, stride, padding, dilation = 1, groups = 1;
  };
  using enum DType;
  for (const Case& c :
       {Case{2, 7, 5, 3, 4, 3, 3, 1, 1}, Case{1, 8, 8, 1, 2, 5, 3, 2, 0}, Case{3, 4, 6, 5, 1, 1, 1, 1, 0},
        Case{2, 9, 9, 2, 3, 2, 3, 3, 2}, Case{0, 5, 5, 2, 2, 3, 3, 1, 1}, Case{2, 9, 7, 3, 4, 3, 2, 1, 2, 3},
        Case{2, 9, 7, 6, 4, 3, 3, 2, 1, 1, 2}, Case{3, 8, 9, 6, 9, 2, 3, 1, 2, 2, 3},
        Case{2, 9, 7, 70, 70, 3, 3, 1, 1, 1, 70}, Case{2, 9, 10, 5, 5, 3, 2, 2, 2, 2, 5},
        Case{1, 6, 6, 3, 6, 3, 3, 1, 0, 1, 3}})
    for (const ConvTypes& types : {ConvTypes{kFloat32, kFloat32, kFloat32}, ConvTypes{kBFloat16, kBFloat16, kFloat32},
                                   ConvTypes{kBFloat16, kBFloat16, kBFloat16}, ConvTypes{kFloat16, kFloat32, kFloat32},
                                   ConvTypes{kFloat64, kFloat64, kFloat64}})
      for (bool accumulate : {false, true}) {
        SCOPED_TRACE(str(c.images, " images, kernel ", c.kernel_h, " x ", c.kernel_w, ", stride ", c.stride,
                         ", dilation ", c.dilation, ", ", c.groups, " groups, ", types.x, " and ", types.weight,
                         accumulate ? ", accumulated" : ""));
        ConvArgs a;
        a.images = c.images, a.height = c.height, a.width = c.width, a.in_channels = c.in, a.out_channels = c.out;
        a.kernel_h = c.kernel_h, a.kernel_w = c.kernel_w, a.stride = c.stride, a.padding = c.padding;
        a.dilation = c.dilation, a.groups = c.groups;
        a.accumulate = accumulate;
        if (c.images == 0 && !accumulate) continue;  // the CPU leaves a gradient of no images as it was
        expect_near(by_patches(a, types, accumulate), on_cpu(a, types, accumulate), 2 * tolerance_of(types.x));
        if (HasFatalFailure()) return;
      }
}

TEST(PatchConv, NoImagesMakeZeroGradients) {
  Array dw(DType::kFloat32, 18);
  for (int64_t i = 0; i < 18; ++i) store_element<float>(dw.data(), DType::kFloat32, i, 3);
  ConvArgs a;
  a.height = a.width = 5, a.out_height = a.out_width = 3, a.kernel_h = a.kernel_w = 3, a.in_channels = 2;
  a.out_channels = 1;
  a.weight = dw.data();
  patch_conv_backward_weight(*make_queue(1), a);
  EXPECT_EQ(dw.values(), std::vector<double>(18, 0.0));
}

// More images than the memory for patches holds: a gradient in 16 bits is still rounded once.
TEST(PatchConv, ManyImages) {
  ConvArgs a;
  a.images = 20, a.height = a.width = 72, a.in_channels = 8, a.out_channels = 1, a.kernel_h = a.kernel_w = 5;
  a.padding = 2;
  using enum DType;
  for (bool accumulate : {false, true}) {
    a.accumulate = accumulate;
    const Convolved expected = on_cpu(a, {kFloat32, kFloat32, kFloat32}, false);
    expect_near(by_patches(a, {kFloat32, kFloat32, kFloat32}, false), expected, 1e-5);
    const Convolved narrow = by_patches(a, {kFloat32, kFloat32, kBFloat16}, false);
    expect_near("dw in bf16", narrow.dw, expected.dw, 0x1p-8);
  }
}

}  // namespace
}  // namespace lockstep::cuda::cuda_fallbacks_test
