// Products through cuBLASLt, pretended: what is asked of it for each epilogue, which algorithm is taken, and what
// happens where it has none. Values are small integers, so that results equal those of the CPU.
#include "core/device/cuda/libraries/blas.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

#include "core/base/error.h"
#include "core/device/cuda/runtime/choices.h"
#include "core/device/cuda/runtime/queue.h"
#include "core/device/cuda/runtime/switches.h"
#include "core/device/thread_pool.h"
#include "core/kernels/kernels.h"
#include "core/kernels/stage.h"
#include "tests/support/cuda_scratch.h"
#include "tests/support/fake_cublas_lt.h"
#include "tests/support/fake_cuda_runtime.h"

namespace lockstep::cuda::cuda_blas_test {
namespace {

using testing::fake_cublas_lt;

// The CPU's kernels, on threads of its own.
const KernelTable& table() {
  static const KernelTable instance = [] {
    KernelTable t = kernels();
    t.pointwise = [](Parallel&, PointwiseOp op, const PointwiseArgs& a) {
      ThreadPool pool(1);
      kernels().pointwise(pool, op, a);
    };
    t.column_sum = [](Parallel&, const ColumnArgs& a) {
      ThreadPool pool(1);
      kernels().column_sum(pool, a);
    };
    return t;
  }();
  return instance;
}

std::vector<std::string>& warnings() {
  static std::vector<std::string> lines;
  return lines;
}

class CudaBlas : public ::testing::Test {
 protected:
  static constexpr int64_t kM = 16, kN = 24, kK = 9;

  CudaBlas() {
    testing::reset_fake_cuda();
    fake_cublas_lt() = {};
    forget_plans();
    switches() = {};
    std::mt19937 random(3);
    for (auto* values : {&a_, &b_, &c_, &aux_, &vector_}) {
      values->resize(kN * kN * 4);
      for (size_t i = 0; i < values->size() / 2; ++i)
        store_element<double>(values->data(), type_, static_cast<int64_t>(i), static_cast<double>(random() % 5) - 2);
    }
    queue_ =
        std::make_unique<CudaQueue>(std::make_shared<CudaEventPool>(0), table(), testing::kCudaScratch, 100, false);
  }
  ~CudaBlas() override { EXPECT_TRUE(fake_cublas_lt().misuse.empty()) << fake_cublas_lt().misuse.front(); }

  // Does it, on the GPU's table and on the CPU; the same bytes must come of both.
  void expect_same(const GemmArgs& g, const char* what) {
    const std::vector<std::vector<char>*> written{&c_, &aux_, &vector_};
    const std::vector<std::vector<char>> before{c_, aux_, vector_};
    gemm(*queue_, g);
    const std::vector<std::vector<char>> got{c_, aux_, vector_};
    for (size_t i = 0; i < written.size(); ++i) memcpy(written[i]->data(), before[i].data(), before[i].size());
    ThreadPool pool(1);
    kernels().gemm(pool, g);
    for (size_t i = 0; i < written.size(); ++i) EXPECT_EQ(got[i], *written[i]) << what << ", operand " << i;
  }

  GemmArgs product() {
    GemmArgs g;
    g.m = kM, g.n = kN, g.k = kK;
    g.a = {a_.data(), type_, 1, kM, 0};  // as a weight's gradient has it
    g.b = {b_.data(), type_, kN, 1, 0};
    g.c = {c_.data(), type_, kN, 1, 0};
    return g;
  }
  GemmArgs with(Epilogue epilogue, bool bias) {
    GemmArgs g = product();
    g.epilogue = epilogue;
    if (epilogue != Epilogue::kNone) g.aux = aux_.data();
    if (bias) g.bias = vector_.data(), g.bias_dtype = type_;
    return g;
  }
  GemmArgs with_bias_gradient(bool accumulate) {
    GemmArgs g = product();
    g.bias_gradient = vector_.data(), g.bias_gradient_dtype = type_;
    g.accumulate = g.accumulate_bias_gradient = accumulate;
    return g;
  }

  const DType type_ = DType::kBFloat16;
  std::vector<char> a_, b_, c_, aux_, vector_;
  std::unique_ptr<CudaQueue> queue_;
};

TEST_F(CudaBlas, AsksForEachEpilogueOnce) {
  struct Case {
    const char* name;
    GemmArgs g;
    uint32_t epilogue;
  };
  const Case cases[] = {
      {"plain", product(), CUBLASLT_EPILOGUE_DEFAULT},
      {"bias", with(Epilogue::kNone, true), CUBLASLT_EPILOGUE_BIAS},
      {"gelu", with(Epilogue::kGelu, false), CUBLASLT_EPILOGUE_GELU_AUX},
      {"gelu of a bias", with(Epilogue::kGelu, true), CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
      {"gelu's gradient", with(Epilogue::kGeluBackward, false), CUBLASLT_EPILOGUE_DGELU},
      {"bias gradient", with_bias_gradient(false), CUBLASLT_EPILOGUE_BGRADB},
      {"bias gradient, added", with_bias_gradient(true), CUBLASLT_EPILOGUE_BGRADB},
  };
  for (int round = 0; round < 2; ++round)
    for (const Case& c : cases) {
      fake_cublas_lt().epilogues.clear();
      expect_same(c.g, c.name);
      EXPECT_EQ(fake_cublas_lt().epilogues, std::vector<uint32_t>{c.epilogue}) << c.name;
    }
  EXPECT_EQ(fake_cublas_lt().chosen, 7) << "a plan each";
}

TEST_F(CudaBlas, GoesWithoutWhereTheLibraryHasNone) {
  const std::function<void()> ways[] = {
      [] { fake_cublas_lt().heuristic = CUBLAS_STATUS_NOT_SUPPORTED; },
      [] { fake_cublas_lt().heuristic = CUBLAS_STATUS_INVALID_VALUE; }, [] { fake_cublas_lt().none = true; },
      [] { fake_cublas_lt().only_split = true; }, [] { fake_cublas_lt().launch = CUBLAS_STATUS_NOT_SUPPORTED; }};
  warnings().clear();
  set_choice_warning([](const std::string& line) { warnings().push_back(line); });
  for (const auto& way : ways) {
    forget_plans();
    queue_ =
        std::make_unique<CudaQueue>(std::make_shared<CudaEventPool>(0), table(), testing::kCudaScratch, 100, false);
    fake_cublas_lt() = {};
    fake_cublas_lt().refused = [](uint32_t e) { return e != CUBLASLT_EPILOGUE_DEFAULT && e != CUBLASLT_EPILOGUE_BIAS; };
    way();
    for (int round = 0; round < 2; ++round) {
      expect_same(with(Epilogue::kGelu, false), "gelu");
      expect_same(with(Epilogue::kGelu, true), "gelu of a bias");
      expect_same(with(Epilogue::kGeluBackward, false), "gelu's gradient");
      expect_same(with_bias_gradient(false), "bias gradient");
      expect_same(with_bias_gradient(true), "bias gradient, added");
      EXPECT_EQ(fake_cublas_lt().chosen, 8) << "five of them in vain, a product, one with a bias, one that is added to "
                                               "what is there; then never again";
    }
    for (uint32_t e : fake_cublas_lt().epilogues) EXPECT_FALSE(fake_cublas_lt().refused(e));
    EXPECT_NE(algorithm_choices().find("NT, ld 24 16 24, bias gradient: none: the product, and passes of our own"),
              std::string::npos)
        << algorithm_choices();
    EXPECT_EQ(warnings().size(), 5u) << "one for each, once";
  }
  EXPECT_NE(warnings().front().find("gelu: none: the product, and passes of our own"), std::string::npos);
  set_choice_warning(nullptr);
}

TEST_F(CudaBlas, QueuesOfOneGpuShareTheirPlans) {
  expect_same(product(), "first queue");
  std::vector<std::unique_ptr<CudaQueue>> queues;
  for (int gpu : {0, 0, 1}) {
    queues.push_back(
        std::make_unique<CudaQueue>(std::make_shared<CudaEventPool>(gpu), table(), testing::kCudaScratch, 100, false));
    std::swap(queue_, queues.back());
    expect_same(product(), "another queue");
    EXPECT_EQ(fake_cublas_lt().chosen, gpu + 1);
    std::swap(queue_, queues.back());
  }
}

TEST_F(CudaBlas, StartsTheLibraryOnTheGpuOfItsQueueAndKeepsItsHandle) {
  constexpr size_t kQueues = 4;  // more than other tests left handles of this GPU
  for (const bool again : {false, true}) {
    std::vector<std::unique_ptr<CudaQueue>> queues;
    for (size_t i = 0; i < kQueues; ++i) {
      queues.push_back(
          std::make_unique<CudaQueue>(std::make_shared<CudaEventPool>(1), table(), testing::kCudaScratch, 100, false));
      std::swap(queue_, queues.back());
      testing::fake_cuda().current = 0;
      expect_same(product(), "a product on GPU 1");
      std::swap(queue_, queues.back());
    }
    const std::vector<int>& made = fake_cublas_lt().created_on;
    EXPECT_EQ(made.empty(), again) << made.size() << " handles were made";
    EXPECT_EQ(std::count(made.begin(), made.end(), 1), std::ssize(made));
    fake_cublas_lt().created_on.clear();
  }
}

TEST_F(CudaBlas, TakesTheFirstWhereThereIsNoMemoryToTimeThem) {
  queue_->allow_fast(true);
  expect_same(product(), "not timed");
  EXPECT_EQ(fake_cublas_lt().misuse, std::vector<std::string>{"a split sum"}) << "the first splits it";
  fake_cublas_lt().misuse.clear();
  EXPECT_NE(algorithm_choices().find("first of the heuristic"), std::string::npos);
}

// Only sums of weights' gradients, and only where the parts are added in the compute type by a kernel of their own.
TEST_F(CudaBlas, SplitsSumsInAFixedOrderWhereThatIsSwitchedOn) {
  GemmArgs g = product();
  g.c.dtype = DType::kFloat32;
  struct Case {
    bool on;
    DType c;
    uint32_t scheme, mask;
    bool splits;
  };
  constexpr auto kNone = uint32_t(CUBLASLT_REDUCTION_SCHEME_NONE),
                 kSeparate = uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  for (const Case& c :
       {Case{false, DType::kFloat32, kSeparate, kNone, false}, Case{true, DType::kFloat32, kSeparate, kSeparate, true},
        Case{true, DType::kFloat32, CUBLASLT_REDUCTION_SCHEME_INPLACE, kSeparate, false},
        Case{true, DType::kFloat32, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, kSeparate, false},
        Case{true, type_, kSeparate, kNone, false}}) {
    forget_plans();
    switches().split_k = c.on;
    fake_cublas_lt().split_scheme = c.scheme;
    g.c.dtype = c.c;
    expect_same(g, "a gradient");
    EXPECT_EQ(fake_cublas_lt().reduction_mask, c.mask);
    EXPECT_EQ(fake_cublas_lt().misuse.size(), c.splits ? 1u : 0u) << "the first that is offered splits its sum";
    fake_cublas_lt().misuse.clear();
  }
}

TEST_F(CudaBlas, LeavesOutWhatIsSwitchedOff) {
  switches() = switches_of("no_gelu_epilogue  no_bias_gradient_epilogue");
  EXPECT_EQ(to_text(switches()), "no_gelu_epilogue no_bias_gradient_epilogue");
  expect_same(with(Epilogue::kGelu, true), "gelu of a bias");
  expect_same(with(Epilogue::kGeluBackward, false), "gelu's gradient");
  expect_same(with_bias_gradient(true), "bias gradient");
  for (uint32_t e : fake_cublas_lt().epilogues)
    EXPECT_TRUE(e == CUBLASLT_EPILOGUE_DEFAULT || e == CUBLASLT_EPILOGUE_BIAS) << e;
  EXPECT_NE(algorithm_choices().find("none: switched off by no_gelu_epilogue"), std::string::npos);
  EXPECT_THROW(switches_of("split"), Error);
}

TEST_F(CudaBlas, MultipliesInTf32OnlyWhereTheQueueMay) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16})
    for (const bool on : {false, true}) {
      if (type == DType::kBFloat16) forget_plans();  // one plan serves both; those of fp32 are two
      queue_->allow_tf32(on);
      GemmArgs g = product();
      for (Matrix* m : {&g.a, &g.b, &g.c}) m->dtype = type;
      gemm(*queue_, g);
      EXPECT_EQ(fake_cublas_lt().compute_type,
                on && type == DType::kFloat32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
    }
}

TEST_F(CudaBlas, OnlyAFastQueueSplitsSums) {
  fake_cublas_lt().refused = [](uint32_t) { return true; };
  fake_cublas_lt().only_split = true;
  queue_->allow_fast(true);
  expect_same(product(), "the one algorithm there is");
  EXPECT_EQ(fake_cublas_lt().misuse, std::vector<std::string>{"a split sum"});
  fake_cublas_lt().misuse.clear();
  queue_->allow_fast(false);
  EXPECT_THROW(gemm(*queue_, product()), Error);
  EXPECT_EQ(fake_cublas_lt().misuse, std::vector<std::string>{});
}

// An algorithm that the heuristic gave meets a bad argument: a fault of ours, not to be passed over.
TEST_F(CudaBlas, ABadArgumentIsNoRefusal) {
  fake_cublas_lt().refused = [](uint32_t e) { return e == CUBLASLT_EPILOGUE_GELU_AUX; };
  fake_cublas_lt().launch = CUBLAS_STATUS_INVALID_VALUE;
  try {
    gemm(*queue_, with(Epilogue::kGelu, false));
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kDevice);
    EXPECT_NE(std::string(e.what()).find("gelu"), std::string::npos) << e.what();
  }
}

TEST_F(CudaBlas, AProductItselfIsNotDoneWithout) {
  fake_cublas_lt().refused = [](uint32_t) { return true; };
  fake_cublas_lt().only_split = true;
  for (const GemmArgs& g : {product(), with(Epilogue::kGelu, false)}) try {
      gemm(*queue_, g);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kDevice);
      EXPECT_NE(std::string(e.what()).find("that does not split its sum"), std::string::npos) << e.what();
    }
}

}  // namespace
}  // namespace lockstep::cuda::cuda_blas_test
