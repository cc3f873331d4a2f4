// What convolution and attention by cuDNN share: its graphs, the plans that are made of them and kept, and addresses as
// it wants them. Only for dnn_conv.cpp and dnn_attention.cpp.
#pragma once

#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/partition.h"
#include "core/device/cuda/libraries/dnn.h"
#include "core/device/cuda/runtime/choices.h"
#include "core/device/cuda/runtime/idle_handles.h"
#include "core/device/cuda/runtime/queue.h"
#include "core/device/cuda/runtime/version.h"

namespace lockstep::cuda::dnn {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using Node = std::shared_ptr<Tensor_attributes>;
using Sizes = std::vector<int64_t>;

constexpr int kLibrary = 1, kMaskSlot = 2, kWorkspaceSlot = 5;
inline bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }
inline bool is_narrow(DType t) { return t == DType::kBFloat16 || t == DType::kFloat16; }

inline fe::DataType_t type_of(DType t) {
  switch (t) {
    case DType::kBFloat16: return fe::DataType_t::BFLOAT16;
    case DType::kFloat16: return fe::DataType_t::HALF;
    default: break;
  }
  check(t == DType::kFloat32, "cuDNN asked for type ", t);
  return fe::DataType_t::FLOAT;
}

// What a graph is of; with the shape's numbers, the key under which it is kept.
enum class Kind : int64_t {
  kConv,
  kConvWithBias,
  kConvBackwardInput,
  kConvBackwardWeight,
  kAttention,
  kAttentionBackward,
  kOurAttention,  // by kernels of our own
  kOurAttentionBackward
};
using Key = std::array<int64_t, 19>;
struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t h = 0;
    for (int64_t v : key) {
      h = (h ^ static_cast<uint64_t>(v)) * 0x9E3779B97F4A7C15u;
      h ^= h >> 32;
    }
    return static_cast<size_t>(h);
  }
};

// Names of a graph's tensors.
enum Name : int64_t { kX = 1, kWeight, kY, kBias, kQ, kK, kV, kMask, kDy, kStats, kDq, kDk, kDv };
using Pointers = std::unordered_map<int64_t, void*>;

struct Plan {
  std::shared_ptr<Graph> graph;  // null: cuDNN has none, and kernels of our own serve
  int64_t workspace = 0;
};

enum class Sums { kProducts, kFp32Products, kAttention };

// cuDNN gives every engine's reasons, in hundreds of lines: the first says enough.
inline std::string without_engine(const std::string& reasons) {
  return str("kernels of our own, as cuDNN has none: ", reasons.substr(0, std::min(reasons.find('\n'), size_t(200))));
}

// The first of the heuristic's engines that can be built. `how`: its name, or why there is none.
template <class Describe>
Plan build_one(cudnnHandle_t handle, Sums sums, Describe describe, std::string& how) {
  using Note = fe::NumericalNote_t;
  Plan plan{std::make_shared<Graph>()};
  Graph& graph = *plan.graph;
  graph.set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
  auto good = [&](fe::error_t status) {
    if (status.is_good()) return true;
    how = without_engine(status.get_message());
    return false;
  };
  try {
    describe(graph);
    if (good(graph.validate()) && good(graph.build_operation_graph(handle)) &&
        good(graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}))) {
      if (sums != Sums::kAttention) {
        // Products as they stand, in an order of their own: no atomics, no transforms, no narrower inputs or sums; for
        // fp32, tensor cores would mean TF32. Attention has its own word for determinism.
        std::vector<Note> unwanted{Note::NONDETERMINISTIC,
                                   Note::DOWN_CONVERT_INPUTS,
                                   Note::REDUCED_PRECISION_REDUCTION,
                                   Note::FFT,
                                   Note::WINOGRAD,
                                   Note::WINOGRAD_TILE_4x4,
                                   Note::WINOGRAD_TILE_6x6,
                                   Note::WINOGRAD_TILE_13x13};
        if (sums == Sums::kFp32Products) unwanted.push_back(Note::TENSOR_CORE);
        graph.deselect_numeric_notes(unwanted).deselect_workspace_greater_than(kConvWorkspace);
      }
      if (good(graph.check_support()) && good(graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE)) &&
          good(graph.get_workspace_size(plan.workspace)) && good(graph.get_plan_name(how))) {
        how = str("cuDNN ", how, ", workspace ", plan.workspace);
        return plan;
      }
    }
  } catch (const std::runtime_error& error) {  // the frontend's own, of its older parts
    how = without_engine(error.what());
  }
  plan.graph = nullptr;
  return plan;
}

// The plan of the first description that cuDNN can build, in the order of the arguments.
template <class... Describe>
Plan build(cudnnHandle_t handle, Sums sums, std::string& how, Describe... describe) {
  Plan plan;
  std::string first;  // why there is none of the first
  const auto attempt = [&](auto& one) {
    if (plan.graph) return;
    plan = build_one(handle, sums, one, how);
    if (!plan.graph && first.empty()) first = how;
  };
  (attempt(describe), ...);
  if (!plan.graph) how = first;
  return plan;
}

// cuDNN for one queue at a time.
class Dnn {
 public:
  Dnn() {
    check_library_version("cuDNN", cudnnGetVersion(), CUDNN_VERSION);
    check_dnn(cudnnCreate(&handle_), "starting");
  }
  ~Dnn() { (void)cudnnDestroy(handle_); }
  Dnn(const Dnn&) = delete;
  Dnn& operator=(const Dnn&) = delete;

  static Dnn& of(CudaQueue& queue) {
    std::shared_ptr<void>& mine = queue.library(kLibrary);
    if (!mine) {
      const cudaStream_t stream = queue.stream();  // the handle is of the GPU that is current when it is made
      auto taken = take_handle<Dnn>(queue.index(), [] { return std::make_unique<Dnn>(); });
      check_dnn(cudnnSetStream(taken->handle_, stream), "taking a stream");
      mine = std::move(taken);
    }
    return *static_cast<Dnn*>(mine.get());
  }

  // The plan stays where it is. Each `describe` says what is to be computed, of which the first that can be built is
  // taken; `text` names the shape, for the log.
  template <class Text, class... Describe>
  const Plan& plan(const Key& key, Sums sums, Text text, Describe... describe) {
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      std::string how;
      Plan made = build(handle_, sums, how, describe...);
      found = plans_.emplace(key, std::move(made)).first;
      // Attention of our own is an order of magnitude slower in 16 bits, which alone comes here.
      if (!found->second.graph && sums == Sums::kAttention) record_fallback(text(), how);
      else record_choice(text(), how);
    }
    return found->second;
  }

  // Warns that kernels of our own serve this shape, of which cuDNN is not asked: once.
  template <class Text>
  void warn_of_ours(const Key& key, Text text) {
    if (plans_.try_emplace(key).second) record_fallback(text(), "kernels of our own, as cuDNN is not asked for that");
  }

  void run(CudaQueue& queue, const Plan& plan, Pointers pointers, const char* what) {
    (void)queue.stream();  // its GPU, on this thread
    void* workspace = queue.scratch_memory(kWorkspaceSlot, std::max<int64_t>(plan.workspace, 1));
    fe::error_t status = plan.graph->execute(handle_, pointers, workspace);
    require(status.is_good(), ExitCode::kDevice, "cuDNN ", library_version_text(cudnnGetVersion()), ": ", what,
            " failed: ", status.get_message(), "; nvidia-smi shows whether the GPU is well and its memory free");
  }

 private:
  static void check_dnn(cudnnStatus_t status, const char* what) {
    require(status == CUDNN_STATUS_SUCCESS, ExitCode::kDevice, "cuDNN ", library_version_text(cudnnGetVersion()), ": ",
            what, " failed: ", cudnnGetErrorString(status),
            "; nvidia-smi shows whether the GPU is well and its memory free");
  }

  cudnnHandle_t handle_ = nullptr;
  std::unordered_map<Key, Plan, KeyHash> plans_;
};

// Copies of operands that are not aligned to 16 bytes, as cuDNN requires: an address must not decide which algorithm
// runs.
inline void* aligned_in(CudaQueue& queue, const void* data, int64_t bytes, int slot) {
  if (is_aligned(data)) return const_cast<void*>(data);
  void* copy = queue.scratch_memory(slot, bytes);
  queue.copy(copy, data, bytes);
  return copy;
}
inline void* aligned_out(CudaQueue& queue, void* data, int64_t bytes, int slot) {
  return is_aligned(data) ? data : queue.scratch_memory(slot, bytes);
}

// The same for several inputs: copies share one slot, 0.
struct Input {
  const void* data;
  int64_t bytes;
};
template <size_t N>
std::array<void*, N> aligned_inputs(CudaQueue& queue, const std::array<Input, N>& inputs) {
  int64_t room = 0;
  for (const Input& in : inputs) room += is_aligned(in.data) ? 0 : round_up(in.bytes, 16);
  char* copy = room > 0 ? static_cast<char*>(queue.scratch_memory(0, room)) : nullptr;
  std::array<void*, N> out;
  for (size_t i = 0; i < N; ++i) {
    out[i] = const_cast<void*>(inputs[i].data);
    if (is_aligned(inputs[i].data)) continue;
    out[i] = copy;
    queue.copy(copy, inputs[i].data, inputs[i].bytes);
    copy += round_up(inputs[i].bytes, 16);
  }
  return out;
}

template <class... Describe>
PlanThere plan_on(const CardForPlans& card, Sums sums, Describe... describe) {
  auto properties = std::make_shared<fe::DeviceProperties>();
  fe::error_t known = properties->deserialize({card.properties.begin(), card.properties.end()});
  require(known.is_good(), ExitCode::kDevice, "cuDNN does not take these properties of a card: ", known.get_message());
  PlanThere out;
  const Plan plan = build(nullptr, sums, out.how, [&](Graph& graph) {
    graph.set_device_properties(properties).set_sm_version(card.architecture);
    describe(graph);
  }...);
  out.found = plan.graph != nullptr, out.workspace = plan.workspace;
  return out;
}

}  // namespace lockstep::cuda::dnn
