#include "tests/support/fake_cublas_lt.h"

#include <cstring>

#include "core/device/thread_pool.h"
#include "core/kernels/kernels.h"
#include "core/kernels/stage.h"

namespace lockstep::testing {
namespace {

FakeCublasLt state;

void expect(bool holds, const char* what) {
  if (!holds) state.misuse.push_back(what);
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
void pass(PointwiseOp op, const Layout& c, void* out, std::initializer_list<void*> ins) {
  PointwiseArgs a;
  auto view = [&](void* data) { return Operand{data, c.dtype, {c.ld, 1}}; };
  a.numel = c.rows * c.cols, a.dims = 2;
  a.sizes[0] = c.cols, a.sizes[1] = c.rows;
  a.outs = 1;
  a.out[0] = view(out);
  for (void* in : ins) a.in[a.ins++] = view(in);
  ThreadPool pool(1);
  kernels().pointwise(pool, op, a);
}

}  // namespace

FakeCublasLt& fake_cublas_lt() { return state; }

}  // namespace lockstep::testing

using namespace lockstep;
using namespace lockstep::testing;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&state);
  int gpu = -1;
  (void)cudaGetDevice(&gpu);
  state.created_on.push_back(gpu);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "a status in the library's words"; }
const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS"; }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t d, size_t bytes, cublasComputeType_t compute,
                                               cudaDataType_t) {
  std::memset(d, 0, bytes);
  state.compute_type = compute;
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
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void* value,
                                                    size_t bytes) {
  if (which == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) std::memcpy(&state.reduction_mask, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// An algorithm is its number of parts of the sum. The first that is offered splits it.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  ++state.chosen;
  const bool asked = state.refused(epilogue_of(d));
  if (asked && state.heuristic != CUBLAS_STATUS_SUCCESS) return state.heuristic;
  *count = asked && state.none ? 0 : asked && state.only_split ? 1 : 2;
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
  const bool splits = algo->data[0] > 1;
  const uint64_t is = which == CUBLASLT_ALGO_CONFIG_SPLITK_NUM                   ? algo->data[0]
                      : which == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME && splits ? state.split_scheme
                                                                                 : 0;
  std::memcpy(value, &is, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void*, const void* a_data,
                              cublasLtMatrixLayout_t a_layout, const void* b_data, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c_data, cublasLtMatrixLayout_t c_layout, void* d_data,
                              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algo, void*, size_t, cudaStream_t) {
  const uint32_t epilogue = epilogue_of(d);
  if (state.refused(epilogue) && state.launch != CUBLAS_STATUS_SUCCESS) return state.launch;
  state.epilogues.push_back(epilogue);
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
      store_element<double>(d_data, c.dtype, i + j * c.ld, sum);
    }
  for (int64_t j = 0; j < c.cols && bgrad; ++j) {
    double sum = 0;
    for (int64_t x = 0; x < k; ++x) sum += B(x, j);
    store_element<double>(bias, c.dtype, j, sum);
  }
  if ((epilogue & ~4u) == CUBLASLT_EPILOGUE_GELU_AUX) {
    pass(PointwiseOp::kCopy, c, aux, {d_data});
    pass(PointwiseOp::kGelu, c, d_data, {aux});
  }
  if (epilogue == CUBLASLT_EPILOGUE_DGELU) pass(PointwiseOp::kGeluBackward, c, d_data, {d_data, aux});
  return CUBLAS_STATUS_SUCCESS;
}

// Of timing: there is never memory for it.
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void**, size_t, cudaStream_t) { return cudaErrorMemoryAllocation; }
cudaError_t cudaFreeAsync(void*, cudaStream_t) { return cudaErrorNotSupported; }

}  // extern "C"
