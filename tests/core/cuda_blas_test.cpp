// Products through cuBLASLt, pretended: what is asked of it for each epilogue, which algorithm is taken, and what
// happens where it has none. Built against its own header. Values are small integers, so that results equal the CPU's
// kernel.
#include "core/device/cuda/blas.h"

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

#include "core/base/error.h"
#include "core/device/cuda/choices.h"
#include "core/device/cuda/queue.h"
#include "core/device/thread_pool.h"
#include "core/kernels/kernels.h"
#include "core/kernels/stage.h"
#include "tests/support/fake_cuda_runtime.h"

namespace {

using lockstep::DType;

struct FakeBlas {
  // What a test asks for: of calls with these epilogues.
  std::function<bool(uint32_t epilogue)> beyond = [](uint32_t) { return false; };
  cublasStatus_t heuristic = CUBLAS_STATUS_SUCCESS, launch = CUBLAS_STATUS_SUCCESS;
  bool none = false, only_split = false;

  // What was seen.
  int chosen = 0;                   // calls of the heuristic
  std::vector<uint32_t> epilogues;  // of products that ran
  std::vector<std::string> misuse;
} blas;

void expect(bool holds, const char* what) {
  if (!holds) blas.misuse.push_back(what);
}

// Descriptors hold an attribute at the index that it has.
template <class T>
T of(const uint64_t* data, int index) {
  T value;
  std::memcpy(&value, data + index, sizeof value);
  return value;
}
void put(uint64_t* data, int index, const void* value, size_t bytes) {
  data[index] = 0;
  std::memcpy(data + index, value, bytes);
}

DType dtype_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_16BF: return DType::kBFloat16;
    case CUDA_R_16F: return DType::kFloat16;
    case CUDA_R_64F: return DType::kFloat64;
    default: return DType::kFloat32;
  }
}

struct Layout {
  explicit Layout(const cublasLtMatrixLayoutOpaque_t* m)
      : dtype(dtype_of(of<cudaDataType>(m->data, 0))),
        rows(of<int64_t>(m->data, 1)),
        cols(of<int64_t>(m->data, 2)),
        ld(of<int64_t>(m->data, 3)) {}
  DType dtype;
  int64_t rows, cols, ld;
};

uint32_t epilogue_of(const cublasLtMatmulDescOpaque_t* d) {
  return of<uint32_t>(d->data, CUBLASLT_MATMUL_DESC_EPILOGUE);
}

// As one pass over what lies like C.
void pass(lockstep::PointwiseOp op, const Layout& c, void* out, std::initializer_list<void*> ins) {
  lockstep::PointwiseArgs a;
  auto view = [&](void* data) { return lockstep::Operand{data, c.dtype, {c.ld, 1}}; };
  a.numel = c.rows * c.cols, a.dims = 2;
  a.sizes[0] = c.cols, a.sizes[1] = c.rows;
  a.outs = 1;
  a.out[0] = view(out);
  for (void* in : ins) a.in[a.ins++] = view(in);
  lockstep::ThreadPool pool(1);
  lockstep::kernels().pointwise(pool, op, a);
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&blas);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "a status in the library's words"; }
const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS"; }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t d, size_t bytes, cublasComputeType_t,
                                               cudaDataType_t) {
  std::memset(d, 0, bytes);
  const uint32_t plain = CUBLASLT_EPILOGUE_DEFAULT;
  put(d->data, CUBLASLT_MATMUL_DESC_EPILOGUE, &plain, sizeof plain);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t which,
                                              const void* value, size_t bytes) {
  const bool wide = which == CUBLASLT_MATMUL_DESC_BIAS_POINTER || which == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER ||
                    which == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD;
  expect(bytes == (wide ? 8u : 4u), "an attribute of another size");
  put(d->data, which, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t m, size_t bytes, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld) {
  std::memset(m, 0, bytes);
  put(m->data, 0, &type, sizeof type);
  m->data[1] = rows, m->data[2] = cols, m->data[3] = static_cast<uint64_t>(ld);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void*,
                                                size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

// An algorithm is its number of parts of the sum. The first that is offered splits it.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  ++blas.chosen;
  const bool asked = blas.beyond(epilogue_of(d));
  if (asked && blas.heuristic != CUBLAS_STATUS_SUCCESS) return blas.heuristic;
  *count = asked && blas.none ? 0 : asked && blas.only_split ? 1 : 2;
  for (int i = 0; i < *count; ++i) {
    results[i] = {};
    results[i].state = CUBLAS_STATUS_SUCCESS;
    results[i].algo.data[0] = i == 0 ? 4 : 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t which, void* value,
                                                    size_t bytes, size_t* written) {
  const uint64_t is = which == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? algo->data[0] : 0;
  std::memcpy(value, &is, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void*, const void* a_data,
                              cublasLtMatrixLayout_t a_layout, const void* b_data, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c_data, cublasLtMatrixLayout_t c_layout, void* d_data,
                              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algo, void*, size_t, cudaStream_t) {
  using lockstep::load_element;
  const uint32_t epilogue = epilogue_of(d);
  if (blas.beyond(epilogue) && blas.launch != CUBLAS_STATUS_SUCCESS) return blas.launch;
  blas.epilogues.push_back(epilogue);
  expect(algo->data[0] == 1, "a split sum");
  expect(c_data == d_data, "C and D in two places");
  const Layout a(a_layout), b(b_layout), c(c_layout);
  const bool at = of<int32_t>(d->data, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T,
             bt = of<int32_t>(d->data, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T;
  void* const bias = of<void*>(d->data, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  void* const aux = of<void*>(d->data, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
  const bool adds_bias = (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  const bool has_aux = (epilogue & 128) != 0, bgrad = epilogue == CUBLASLT_EPILOGUE_BGRADB;
  if (adds_bias || bgrad)
    expect(dtype_of(of<cudaDataType>(d->data, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE)) == c.dtype,
           "a bias of another type");
  if (has_aux) {
    expect(of<int64_t>(d->data, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD) == c.ld, "aux of another leading dimension");
    expect(c.ld % 8 == 0, "aux of odd rows");
  }
  const int64_t k = at ? a.rows : a.cols;
  auto A = [&](int64_t i, int64_t x) {
    return load_element<double>(a_data, a.dtype, at ? x + i * a.ld : i + x * a.ld);
  };
  auto B = [&](int64_t x, int64_t j) {
    return load_element<double>(b_data, b.dtype, bt ? j + x * b.ld : x + j * b.ld);
  };
  for (int64_t j = 0; j < c.cols; ++j)
    for (int64_t i = 0; i < c.rows; ++i) {
      double sum = 0;
      for (int64_t x = 0; x < k; ++x) sum += A(i, x) * B(x, j);
      if (*static_cast<const float*>(beta) != 0) sum += load_element<double>(c_data, c.dtype, i + j * c.ld);
      if (adds_bias) sum += load_element<double>(bias, c.dtype, i);
      lockstep::store_element<double>(d_data, c.dtype, i + j * c.ld, sum);
    }
  for (int64_t j = 0; j < c.cols && bgrad; ++j) {
    double sum = 0;
    for (int64_t x = 0; x < k; ++x) sum += B(x, j);
    lockstep::store_element<double>(bias, c.dtype, j, sum);
  }
  using lockstep::PointwiseOp;
  if ((epilogue & ~4u) == CUBLASLT_EPILOGUE_GELU_AUX) {
    pass(PointwiseOp::kCopy, c, aux, {d_data});
    pass(PointwiseOp::kGelu, c, d_data, {aux});
  }
  if (epilogue == CUBLASLT_EPILOGUE_DGELU) pass(PointwiseOp::kGeluBackward, c, d_data, {d_data, aux});
  return CUBLAS_STATUS_SUCCESS;
}

// Of timing, which no test asks for.
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*) { return cudaErrorNotSupported; }
cudaError_t cudaMallocAsync(void**, size_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaFreeAsync(void*, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaEventCreate(cudaEvent_t*) { return cudaErrorNotSupported; }
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) { return cudaErrorNotSupported; }

}  // extern "C"

namespace lockstep {

void CudaQueue::begin_range(const char*) {}
void CudaQueue::end_range() {}

namespace cuda {
namespace {

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

class CudaBlas : public ::testing::Test {
 protected:
  static constexpr int64_t kM = 16, kN = 24, kK = 9;

  CudaBlas() {
    testing::reset_fake_cuda();
    blas = {};
    std::mt19937 random(3);
    for (auto* values : {&a_, &b_, &c_, &aux_, &vector_}) {
      values->resize(kN * kN * 4);
      for (size_t i = 0; i < values->size() / 2; ++i)
        store_element<double>(values->data(), type_, static_cast<int64_t>(i), static_cast<double>(random() % 5) - 2);
    }
    queue_ = std::make_unique<CudaQueue>(std::make_shared<CudaEventPool>(0), table(), 100, false);
  }
  ~CudaBlas() override { EXPECT_TRUE(blas.misuse.empty()) << blas.misuse.front(); }

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
      blas.epilogues.clear();
      expect_same(c.g, c.name);
      EXPECT_EQ(blas.epilogues, std::vector<uint32_t>{c.epilogue}) << c.name;
    }
  EXPECT_EQ(blas.chosen, 6) << "added or not is one plan";
}

TEST_F(CudaBlas, GoesWithoutWhereTheLibraryHasNone) {
  const std::function<void()> ways[] = {[] { blas.heuristic = CUBLAS_STATUS_NOT_SUPPORTED; },
                                        [] { blas.heuristic = CUBLAS_STATUS_INVALID_VALUE; },
                                        [] { blas.none = true; },
                                        [] { blas.only_split = true; },
                                        [] { blas.launch = CUBLAS_STATUS_NOT_SUPPORTED; },
                                        [] { blas.launch = CUBLAS_STATUS_INVALID_VALUE; }};
  for (const auto& way : ways) {
    queue_ = std::make_unique<CudaQueue>(std::make_shared<CudaEventPool>(0), table(), 100, false);
    blas = {};
    blas.beyond = [](uint32_t e) { return e != CUBLASLT_EPILOGUE_DEFAULT && e != CUBLASLT_EPILOGUE_BIAS; };
    way();
    for (int round = 0; round < 2; ++round) {
      expect_same(with(Epilogue::kGelu, false), "gelu");
      expect_same(with(Epilogue::kGelu, true), "gelu of a bias");
      expect_same(with(Epilogue::kGeluBackward, false), "gelu's gradient");
      expect_same(with_bias_gradient(false), "bias gradient");
      expect_same(with_bias_gradient(true), "bias gradient, added");
      EXPECT_EQ(blas.chosen, 6) << "four of them in vain, one without a bias, one with it; then never again";
    }
    for (uint32_t e : blas.epilogues) EXPECT_FALSE(blas.beyond(e));
    EXPECT_NE(algorithm_choices().find("NT, ld 24 16 24, bias gradient: none: the product, and passes of our own"),
              std::string::npos)
        << algorithm_choices();
  }
}

TEST_F(CudaBlas, AProductItselfIsNotDoneWithout) {
  blas.beyond = [](uint32_t) { return true; };
  blas.only_split = true;
  for (const GemmArgs& g : {product(), with(Epilogue::kGelu, false)}) try {
      gemm(*queue_, g);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kDevice);
      EXPECT_NE(std::string(e.what()).find("that does not split its sum"), std::string::npos) << e.what();
    }
}

}  // namespace
}  // namespace cuda
}  // namespace lockstep
