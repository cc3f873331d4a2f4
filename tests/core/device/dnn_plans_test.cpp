// cuDNN itself, without a GPU: told of a card by its properties, it chooses and compiles the kernels for the graphs
// that core/device/cuda/dnn_*.cpp describe. What is shown: each graph has a plan on each architecture, within the
// numerics that are asked for, and how much workspace it takes. Not shown: what the kernels compute.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/partition.h"
#include "core/device/cuda/libraries/attention_portions.h"
#include "core/device/cuda/libraries/dnn.h"
#include "tests/support/thorough.h"

namespace lockstep::cuda::dnn_plans_test {
namespace {

// Numbers of the data sheets and of the CUDA C++ programming guide's table of compute capabilities.
struct Card {
  const char* name;
  int architecture, processors, shared_bytes, blocks;  // of a multiprocessor: bytes of a block, blocks at once
  int64_t cache_bytes;
  bool masked_gradient = true;  // whether this cuDNN has a deterministic one
};
constexpr Card kCards[] = {{"NVIDIA A100-SXM4-80GB", 80, 108, 166912, 32, 41943040},
                           {"NVIDIA GeForce RTX 4090", 89, 128, 101376, 24, 75497472},
                           {"NVIDIA H100 80GB HBM3", 90, 132, 232448, 32, 52428800},
                           {"NVIDIA B200", 100, 148, 232448, 32, 132644864, false}};

CardForPlans described(const Card& card) {
  return {str(R"({"deviceName":")", card.name, R"(","deviceVer":)", 10 * card.architecture,
              R"(,"multiProcessorCount":)", card.processors, R"(,"maxSharedMemoryPerBlockOptin":)", card.shared_bytes,
              R"(,"maxCtasPerSM":)", card.blocks, R"(,"l2CacheSize":)", card.cache_bytes,
              R"(,"cudaDeviceId":0,"driverVer":13000,"regsPerBlock":65536,"smClockRateKHz":1700000,)"
              R"("memClockRateKHz":1500000,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
              R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"pciDeviceId":0,)"
              R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"isTccDriver":0,"supportCoopLaunch":1,)"
              R"("totalGlobalMem":80000000000,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64]})"),
          card.architecture};
}

class DnnPlans : public ::testing::TestWithParam<Card> {
 protected:
  void SetUp() override {
    if (!takes_card_for_plans()) GTEST_SKIP() << "cuDNN takes described cards from 9.8 on";
  }
  const CardForPlans card_ = described(GetParam());
};

AttentionArgs attention_args(int64_t batch, int64_t time, int64_t heads, int64_t kv_heads, int64_t dim) {
  AttentionArgs a;
  a.batch = batch, a.time = time, a.heads = heads, a.kv_heads = kv_heads, a.dim = dim;
  a.dtype = DType::kBFloat16, a.scale = 0.125;
  a.unpack(nullptr, nullptr);
  return a;
}

TEST_P(DnnPlans, AttentionOfEachKindHasOne) {
  const int32_t there = 0;
  AttentionArgs bert = attention_args(32, 128, 12, 12, 64), window = attention_args(2, 2048, 32, 8, 128);
  AttentionArgs odd = attention_args(3, 77, 4, 4, 64);
  bert.causal = false, window.window = 256, odd.dtype = DType::kFloat16;
  for (AttentionArgs a : {attention_args(8, 1024, 12, 12, 64), window, bert, odd})
    for (const bool masked : {false, true}) {
      if (masked && a.batch == 32 && !testing::thorough()) continue;
      if (masked) a.documents = &there;
      if (!masked && a.batch == 3 && !testing::thorough()) continue;
      SCOPED_TRACE(str(a.batch, " x ", a.time, " x ", a.heads, " x ", a.dim, masked ? ", masked" : ""));
      const PlanThere forward = attention_plan_on(card_, a, false), gradient = attention_plan_on(card_, a, true);
      EXPECT_TRUE(forward.found) << forward.how;
      if (masked && !GetParam().masked_gradient && !gradient.found) continue;
      ASSERT_TRUE(gradient.found) << gradient.how;
      // Of which attention_portions.cpp makes portions: scores of padded tiles, and fp32 sums of the gradients.
      const int64_t rows = a.batch * a.heads * round_up(a.time, 128);
      EXPECT_LE(gradient.workspace, rows * (round_up(a.time, 128) * size_of(a.dtype) + 16 * a.dim)) << gradient.how;
    }
}

TEST_P(DnnPlans, PortionsOfTheGradientStayWithinTheirBound) {
  const std::vector<HeadGroup> portions = backward_portions(attention_args(2, 4096, 32, 8, 128));
  EXPECT_GT(portions.size(), 1u);
  const PlanThere gradient = attention_plan_on(card_, portions.front(), true);
  ASSERT_TRUE(gradient.found) << gradient.how;
  EXPECT_LE(gradient.workspace, attention_score_bytes() * 5 / 4) << gradient.how;
}

TEST_P(DnnPlans, ConvolutionsHaveOneInEachPrecision) {
  struct Shape {
    int64_t images, side, in, out, kernel, stride, padding;
  };
  int taken = GetParam().architecture;  // of twelve combinations of each shape and card, the slice takes two
  for (const Shape& s : {Shape{32, 224, 3, 64, 7, 2, 3}, Shape{32, 56, 64, 64, 3, 1, 1},
                         Shape{32, 56, 64, 256, 1, 1, 0}, Shape{32, 56, 128, 128, 3, 2, 1},
                         Shape{32, 7, 512, 512, 3, 1, 1}, Shape{8, 28, 1, 32, 3, 1, 1}, Shape{8, 64, 3, 17, 3, 1, 1}})
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32})
      for (const ConvPart part :
           {ConvPart::kForward, ConvPart::kForwardWithBias, ConvPart::kInputGradient, ConvPart::kWeightGradient}) {
        if (!testing::thorough() && ++taken % 6 != 0) continue;
        ConvArgs a;
        a.images = s.images, a.height = a.width = s.side, a.in_channels = s.in, a.out_channels = s.out;
        a.kernel_h = a.kernel_w = s.kernel, a.stride = s.stride, a.padding = s.padding;
        a.out_height = a.out_width = (s.side + 2 * s.padding - s.kernel) / s.stride + 1;
        a.x_dtype = a.weight_dtype = a.y_dtype = a.bias_dtype = dtype;
        const PlanThere plan = conv_plan_on(card_, a, part);
        EXPECT_TRUE(plan.found) << "part " << static_cast<int>(part) << " of " << s.images << " x " << s.side << " x "
                                << s.in << " to " << s.out << ", " << to_text(dtype) << ": " << plan.how;
        EXPECT_LE(plan.workspace, kConvWorkspace);
      }
}

INSTANTIATE_TEST_SUITE_P(Cards, DnnPlans, ::testing::ValuesIn(kCards),
                         [](const auto& info) { return str("sm", info.param.architecture); });

}  // namespace
}  // namespace lockstep::cuda::dnn_plans_test
