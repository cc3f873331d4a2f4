#include "core/device/cuda/libraries/blas.h"

#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/device/cuda/libraries/gemm_layout.h"
#include "core/device/cuda/runtime/choices.h"
#include "core/device/cuda/runtime/idle_handles.h"
#include "core/device/cuda/runtime/queue.h"
#include "core/device/cuda/runtime/switches.h"
#include "core/device/cuda/runtime/version.h"

namespace lockstep::cuda {
namespace {

constexpr int kLibrary = 0, kWorkspaceSlot = 4;
// Fixed: a limit that followed the free memory would choose other algorithms. As large as cuBLAS advises for Hopper.
constexpr uint64_t kWorkspace = uint64_t(32) << 20;
constexpr int kCandidates = 32;  // of the heuristic, best first
constexpr size_t kTimed = 8;     // of them

void check_blas(cublasStatus_t status, const std::string& what) {
  require(status == CUBLAS_STATUS_SUCCESS, ExitCode::kDevice, "cuBLASLt: ", what, ": ", cublasLtGetStatusString(status),
          " (", cublasLtGetStatusName(status), "); nvidia-smi shows whether the GPU is well and its memory free");
}

cudaDataType_t type_of(DType t) {
  switch (t) {
    case DType::kFloat32: return CUDA_R_32F;
    case DType::kBFloat16: return CUDA_R_16BF;
    case DType::kFloat16: return CUDA_R_16F;
    case DType::kFloat64: return CUDA_R_64F;
    default: break;
  }
  check(false, "matrix product with an operand of type ", t);
  return CUDA_R_32F;
}

cublasLtEpilogue_t epilogue_of(const GemmCall& call) {
  switch (call.epilogue) {
    case Epilogue::kNone: break;
    case Epilogue::kGelu: return call.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kGeluBackward: return CUBLASLT_EPILOGUE_DGELU;
  }
  if (call.bias_gradient) return CUBLASLT_EPILOGUE_BGRADB;
  return call.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// How the heuristic says that it does not have an epilogue for these types, layouts or alignments.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

// One call's descriptors and algorithm, ready to run: only addresses come with the call.
struct Plan {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t a, b, c;
  cublasLtMatmulAlgo_t algorithm;
  bool wide = false;     // scaling factors of fp64
  bool refused = false;  // the call goes beyond the product, and there is no algorithm for it
};

template <class T>
void set(cublasLtMatmulDescOpaque_t& to, cublasLtMatmulDescAttributes_t which, const T& value) {
  check_blas(cublasLtMatmulDescSetAttribute(&to, which, &value, sizeof value), "describing a product");
}
template <class T>
void set(cublasLtMatrixLayoutOpaque_t& to, cublasLtMatrixLayoutAttribute_t which, const T& value) {
  check_blas(cublasLtMatrixLayoutSetAttribute(&to, which, &value, sizeof value), "describing a matrix");
}
template <class T>
void set(cublasLtMatmulPreferenceOpaque_t& to, cublasLtMatmulPreferenceAttributes_t which, const T& value) {
  check_blas(cublasLtMatmulPreferenceSetAttribute(&to, which, &value, sizeof value), "describing a preference");
}

template <class T>
T config(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t which) {
  T value = 0;
  size_t written = 0;
  check_blas(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, which, &value, sizeof value, &written),
             "reading an algorithm's configuration");
  return value;
}

// How the parts of a split sum may be added in exact work: not at all, or in the compute type by a kernel of their own,
// in a fixed order. The other schemes add in place, in the order of arrival, or round the parts.
uint32_t exact_reductions(const GemmCall& call) {
  const bool of_a_weight = call.c.dtype == DType::kFloat32 && size_of(call.a.dtype) == 2;
  return switches().split_k && of_a_weight ? uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
                                           : uint32_t(CUBLASLT_REDUCTION_SCHEME_NONE);
}

bool is_exact(const cublasLtMatmulAlgo_t& algorithm, uint32_t reductions) {
  const auto scheme = config<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  const bool splits = config<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1;
  return splits ? scheme != CUBLASLT_REDUCTION_SCHEME_NONE && scheme == reductions
                : (scheme & ~reductions) == CUBLASLT_REDUCTION_SCHEME_NONE;
}

// That an epilogue is switched off, in words for the list of choices; null where it is not.
const char* switched_off(const GemmCall& call) {
  if (call.epilogue != Epilogue::kNone && switches().no_gelu_epilogue) return "no_gelu_epilogue";
  return call.bias_gradient && switches().no_bias_gradient_epilogue ? "no_bias_gradient_epilogue" : nullptr;
}

cublasComputeType_t compute_type(const GemmCall& call) {
  if (call.a.dtype == DType::kFloat64) return CUBLAS_COMPUTE_64F;
  return call.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

std::string to_text(const cublasLtMatmulHeuristicResult_t& choice) {
  const cublasLtMatmulAlgo_t& a = choice.algo;
  return str("algorithm ", config<int32_t>(a, CUBLASLT_ALGO_CONFIG_ID), ", tile ",
             config<uint32_t>(a, CUBLASLT_ALGO_CONFIG_TILE_ID), ", stages ",
             config<uint32_t>(a, CUBLASLT_ALGO_CONFIG_STAGES_ID), ", cluster ",
             config<uint16_t>(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID), ", swizzle ",
             config<uint32_t>(a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING), ", custom ",
             config<uint32_t>(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION), ", split ",
             config<int32_t>(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), ", workspace ", choice.workspaceSize);
}

void describe(cublasLtMatrixLayoutOpaque_t& out, const ColumnMajor& m, int64_t batch) {
  check_blas(cublasLtMatrixLayoutInit(&out, type_of(m.dtype), static_cast<uint64_t>(m.rows),
                                      static_cast<uint64_t>(m.cols), m.ld),
             "describing a matrix");
  if (batch == 1) return;
  set(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, narrow<int32_t>(batch));
  set(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.batch_stride);
}

// The plans of one GPU, for all queues of the process: a heuristic costs tens of microseconds, a timing milliseconds.
// The lock is held while a plan is made. A plan is copied out, as each call sets addresses in it.
struct PlanCache {
  using Plans = std::unordered_map<GemmKey, Plan, GemmKeyHash>;
  std::mutex mutex;
  Plans exact, tuned;

  static PlanCache& of(int gpu) {
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    return all()[gpu];
  }
  static std::map<int, PlanCache>& all() {
    static auto* caches = new std::map<int, PlanCache>;  // queues of static objects may outlive it
    return *caches;
  }
};

// cuBLASLt for one queue.
class Blas {
 public:
  explicit Blas(int gpu) : cache_(PlanCache::of(gpu)) {
    check_library_version("cuBLASLt", cublasLtGetVersion(), CUBLAS_VERSION);
    check_blas(cublasLtCreate(&handle_), "starting");
  }
  ~Blas() { (void)cublasLtDestroy(handle_); }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  static Blas& of(CudaQueue& queue) {
    std::shared_ptr<void>& mine = queue.library(kLibrary);
    if (!mine) {
      make_current(queue.index());  // the handle is of the GPU that is current when it is made
      mine = take_handle<Blas>(queue.index(), [&] { return std::make_unique<Blas>(queue.index()); });
    }
    return *static_cast<Blas*>(mine.get());
  }

  // False, with nothing done, where there is no algorithm for what goes beyond the product.
  bool run(CudaQueue& queue, const GemmCall& call) {
    const cudaStream_t stream = queue.stream();
    void* const workspace = queue.scratch_memory(kWorkspaceSlot, kWorkspace);
    const bool tuned = queue.is_fast();
    const GemmKey key = key_of(call);
    Plan plan = plan_for(key, call, tuned, stream, workspace);
    if (plan.refused) return false;
    set_addresses(plan, call.bias ? call.bias : call.bias_gradient, call.aux);
    const cublasStatus_t status = launch(plan, call, plan.algorithm, call.c.data, stream, workspace);
    if (call.beyond_product() && status == CUBLAS_STATUS_NOT_SUPPORTED) {
      std::lock_guard lock(cache_.mutex);
      refuse((tuned ? cache_.tuned : cache_.exact).at(key), call);
      return false;
    }
    if (status != CUBLAS_STATUS_SUCCESS) check_blas(status, str("the product ", to_text(call)));
    return true;
  }

 private:
  Plan plan_for(const GemmKey& key, const GemmCall& call, bool tuned, cudaStream_t stream, void* workspace) {
    std::lock_guard lock(cache_.mutex);
    PlanCache::Plans& plans = tuned ? cache_.tuned : cache_.exact;
    auto found = plans.find(key);
    if (found == plans.end()) found = plans.emplace(key, make_plan(call, tuned, stream, workspace)).first;
    return found->second;
  }

  cublasStatus_t launch(Plan& plan, const GemmCall& call, const cublasLtMatmulAlgo_t& algorithm, void* to,
                        cudaStream_t stream, void* workspace) const {
    const float one = 1, beta = call.accumulate ? 1 : 0;
    const double wide_one = 1, wide_beta = beta;
    return cublasLtMatmul(handle_, &plan.product, plan.wide ? static_cast<const void*>(&wide_one) : &one, call.a.data,
                          &plan.a, call.b.data, &plan.b, plan.wide ? static_cast<const void*>(&wide_beta) : &beta,
                          call.c.data, &plan.c, to, &plan.c, &algorithm, workspace, kWorkspace, stream);
  }

  static void set_addresses(Plan& plan, const void* bias, const void* aux) {
    if (bias) set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (aux) set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  }

  static void refuse(Plan& plan, const GemmCall& call) {
    plan.refused = true;
    record_fallback(str("product ", to_text(call)), "none: the product, and passes of our own after it");
  }

  // The product without addresses.
  static void describe_product(Plan& plan, const GemmCall& call) {
    check_blas(cublasLtMatmulDescInit(&plan.product, compute_type(call), plan.wide ? CUDA_R_64F : CUDA_R_32F),
               "describing a product");
    set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, call.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(plan.product, CUBLASLT_MATMUL_DESC_TRANSB, call.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(call));
    if (call.bias || call.bias_gradient)
      set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type_of(call.c.dtype)));
    if (call.aux) set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.c.ld);  // its type is C's by default
    // The heuristic reads the alignment from the addresses, which must not depend on this call's.
    const void* const any = reinterpret_cast<const void*>(uintptr_t(16));
    set_addresses(plan, call.bias || call.bias_gradient ? any : nullptr, call.aux ? any : nullptr);
    describe(plan.a, call.a, call.batch);
    describe(plan.b, call.b, call.batch);
    describe(plan.c, call.c, call.batch);
  }

  // What the heuristic proposes, best first, of which exact mode takes only what does not split a sum.
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(Plan& plan, const GemmCall& call, bool tuned) const {
    cublasLtMatmulPreferenceOpaque_t preference;
    check_blas(cublasLtMatmulPreferenceInit(&preference), "describing a preference");
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(call.a.alignment));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(call.b.alignment));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(call.c.alignment));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(call.c.alignment));
    const uint32_t reductions = exact_reductions(call);
    if (!tuned) set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    std::vector<cublasLtMatmulHeuristicResult_t> results(kCandidates);
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, &plan.product, &plan.a, &plan.b, &plan.c, &plan.c, &preference, kCandidates, results.data(), &count);
    if (!(call.beyond_product() ? is_refusal(status) : status == CUBLAS_STATUS_NOT_SUPPORTED))
      check_blas(status, str("choosing for the product ", to_text(call)));
    results.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
    std::erase_if(results, [&](const cublasLtMatmulHeuristicResult_t& r) {
      return r.state != CUBLAS_STATUS_SUCCESS || (!tuned && !is_exact(r.algo, reductions));
    });
    return results;
  }

  Plan make_plan(const GemmCall& call, bool tuned, cudaStream_t stream, void* workspace) {
    Plan plan;
    plan.wide = call.a.dtype == DType::kFloat64;
    if (const char* word = switched_off(call)) {
      plan.refused = true;
      record_choice(str("product ", to_text(call)), str("none: switched off by ", word));
      return plan;
    }
    describe_product(plan, call);
    const std::vector<cublasLtMatmulHeuristicResult_t> results = candidates(plan, call, tuned);
    if (results.empty() && call.beyond_product()) {
      refuse(plan, call);
      return plan;
    }
    require(!results.empty(), ExitCode::kDevice, "cuBLASLt ", library_version_text(cublasLtGetVersion()),
            " has no algorithm for the product ", to_text(call), tuned ? "" : " that does not split its sum",
            "; use extents that are multiples of 8", tuned ? "" : ", or reduce: fast");
    size_t best = 0;
    std::string how = "first of the heuristic";
    if (tuned && results.size() > 1) {
      set_addresses(plan, call.bias ? call.bias : call.bias_gradient, call.aux);
      if (auto timed = fastest(plan, call, results, stream, workspace)) {
        best = timed->best;
        how = str("fastest of these times in ms:", timed->ms);
      }
    }
    plan.algorithm = results[best].algo;
    record_choice(str("product ", to_text(call), tuned ? ", fast" : ""), str(to_text(results[best]), ", ", how));
    return plan;
  }

  struct Timed {
    size_t best;
    std::string ms;  // of each that was tried, "-" where it failed
  };
  // The fastest of the first few; none where the stream is being captured, as what is captured does not run, and where
  // there is no memory to time them in.
  std::optional<Timed> fastest(Plan& plan, const GemmCall& call,
                               const std::vector<cublasLtMatmulHeuristicResult_t>& results, cudaStream_t stream,
                               void* workspace) const {
    cudaStreamCaptureStatus capture;
    check_cuda(cudaStreamIsCapturing(stream, &capture), "asking whether work is being captured");
    if (capture != cudaStreamCaptureStatusNone) return std::nullopt;
    // Into memory of its own: C may hold what the product is added to.
    const int64_t elements = (call.batch - 1) * call.c.batch_stride + (call.c.cols - 1) * call.c.ld + call.c.rows;
    void* to = nullptr;
    const cudaError_t granted = cudaMallocAsync(&to, static_cast<size_t>(elements * size_of(call.c.dtype)), stream);
    if (granted == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return std::nullopt;
    }
    check_cuda(granted, "memory to time products in");
    CudaTimer timer;
    std::optional<size_t> best;
    float best_ms = 0;
    std::string all;
    for (size_t i = 0; i < std::min(results.size(), kTimed); ++i) {
      constexpr int kRuns = 5;
      bool ran = launch(plan, call, results[i].algo, to, stream, workspace) == CUBLAS_STATUS_SUCCESS;  // warms up
      timer.begin(stream);
      for (int run = 0; run < kRuns && ran; ++run)
        ran = launch(plan, call, results[i].algo, to, stream, workspace) == CUBLAS_STATUS_SUCCESS;
      timer.end(stream);
      const float ms = timer.milliseconds();
      all += ran ? str(" ", ms / kRuns) : " -";
      if (ran && (!best || ms / kRuns < best_ms)) best = i, best_ms = ms / kRuns;
    }
    check_cuda(cudaFreeAsync(to, stream), "giving back memory that products were timed in");
    return best ? std::optional(Timed{*best, all}) : std::nullopt;
  }

  cublasLtHandle_t handle_ = nullptr;
  PlanCache& cache_;
};

}  // namespace

void gemm(Parallel& parallel, const GemmArgs& g) {
  CudaQueue& queue = cuda_queue(parallel);
  auto scratch = [&](int slot, int64_t bytes) { return queue.scratch_memory(slot, bytes); };
  auto product = [&](GemmCall call) {
    call.tf32 = queue.allows_tf32() && call.a.dtype == DType::kFloat32;
    return Blas::of(queue).run(queue, call);
  };
  gemm_in_steps(queue, g, scratch, product);
}

void forget_plans() {
  for (auto& [gpu, cache] : PlanCache::all()) {
    std::lock_guard lock(cache.mutex);
    cache.exact.clear();
    cache.tuned.clear();
  }
}

}  // namespace lockstep::cuda
