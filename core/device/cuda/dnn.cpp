#include "core/device/cuda/dnn.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <unordered_map>

#include "core/base/partition.h"
#include "core/device/cuda/attention_mask.h"
#include "core/device/cuda/attention_portions.h"
#include "core/device/cuda/choices.h"
#include "core/device/cuda/idle_handles.h"
#include "core/device/cuda/patch_conv.h"
#include "core/device/cuda/queue.h"
#include "core/device/cuda/switches.h"
#include "core/device/cuda/tiled_attention.h"
#include "core/device/cuda/version.h"
#include "core/kernels/kernels.h"

namespace lockstep::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using Node = std::shared_ptr<Tensor_attributes>;
using Sizes = std::vector<int64_t>;

constexpr int kLibrary = 1, kMaskSlot = 2, kWorkspaceSlot = 5;
bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }
bool is_narrow(DType t) { return t == DType::kBFloat16 || t == DType::kFloat16; }

fe::DataType_t type_of(DType t) {
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
std::string without_engine(const std::string& reasons) {
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

// The first description of which there is one, in the order of these.
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

// Copies that make up for addresses: cuDNN wants 16 bytes, and what it is given must not choose the algorithm.
void* aligned_in(CudaQueue& queue, const void* data, int64_t bytes, int slot) {
  if (is_aligned(data)) return const_cast<void*>(data);
  void* copy = queue.scratch_memory(slot, bytes);
  queue.copy(copy, data, bytes);
  return copy;
}
void* aligned_out(CudaQueue& queue, void* data, int64_t bytes, int slot) {
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

struct ConvSizes {
  explicit ConvSizes(const ConvArgs& a)
      : x{a.images, a.in_channels, a.height, a.width},
        weight{a.out_channels, a.in_channels / a.groups, a.kernel_h, a.kernel_w},
        y{a.images, a.out_channels, a.out_height, a.out_width} {}
  Sizes x, weight, y;  // in cuDNN's order, which is not that of memory; it infers groups from the channels
};
int64_t count(const Sizes& s) { return s[0] * s[1] * s[2] * s[3]; }
// Channels last.
Sizes strides(const Sizes& s) { return {s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]}; }

Node tensor(Graph& graph, Name name, const Sizes& sizes, DType dtype) {
  return graph.tensor(
      Tensor_attributes().set_uid(name).set_dim(sizes).set_stride(strides(sizes)).set_data_type(type_of(dtype)));
}
void make_output(const Node& node, Name name, const Sizes& sizes, DType dtype) {
  node->set_output(true).set_uid(name).set_dim(sizes).set_stride(strides(sizes)).set_data_type(type_of(dtype));
}

// All of one type: cuDNN has no engine that gives fp32 for 16-bit operands.
void describe_conv(Graph& graph, Kind kind, const ConvArgs& a, DType type) {
  const ConvSizes s(a);
  auto with = [&](auto attributes) {
    return attributes.set_padding({a.padding, a.padding})
        .set_stride({a.stride, a.stride})
        .set_dilation({a.dilation, a.dilation});
  };
  if (kind == Kind::kConvBackwardInput) {
    const Node dx = graph.conv_dgrad(tensor(graph, kY, s.y, type), tensor(graph, kWeight, s.weight, type),
                                     with(fe::graph::Conv_dgrad_attributes()));
    make_output(dx, kX, s.x, type);
  } else if (kind == Kind::kConvBackwardWeight) {
    const Node dw = graph.conv_wgrad(tensor(graph, kY, s.y, type), tensor(graph, kX, s.x, type),
                                     with(fe::graph::Conv_wgrad_attributes()));
    make_output(dw, kWeight, s.weight, type);
  } else {
    Node y = graph.conv_fprop(tensor(graph, kX, s.x, type), tensor(graph, kWeight, s.weight, type),
                              with(fe::graph::Conv_fprop_attributes()));
    if (kind == Kind::kConvWithBias) {
      y->set_dim(s.y).set_stride(strides(s.y));
      y = graph.pointwise(y, tensor(graph, kBias, {1, a.out_channels, 1, 1}, a.bias_dtype),
                          fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
    }
    make_output(y, kY, s.y, type);
  }
}

const Plan& conv_plan(CudaQueue& queue, Kind kind, const ConvArgs& a, DType type) {
  const Sums sums = is_narrow(type) || queue.allows_tf32() ? Sums::kProducts : Sums::kFp32Products;
  const Key key{static_cast<int64_t>(kind),
                static_cast<int64_t>(type) | static_cast<int64_t>(sums) << 8,
                kind == Kind::kConvWithBias ? static_cast<int64_t>(a.bias_dtype) : 0,
                a.images,
                a.height,
                a.width,
                a.in_channels,
                a.out_height,
                a.out_width,
                a.out_channels,
                a.kernel_h,
                a.kernel_w,
                a.stride,
                a.padding,
                a.dilation,
                a.groups};
  auto describe = [&](Graph& graph) { describe_conv(graph, kind, a, type); };
  auto text = [&] {
    constexpr const char* kNames[] = {"convolution", "convolution and bias", "convolution's input gradient",
                                      "convolution's weight gradient"};
    return str(kNames[static_cast<size_t>(kind)], " of ", a.images, " x ", a.height, " x ", a.width, " x ",
               a.in_channels, " with ", a.out_channels, " x ", a.kernel_h, " x ", a.kernel_w, ", stride ", a.stride,
               ", padding ", a.padding, a.dilation > 1 ? str(", dilation ", a.dilation) : "",
               a.groups > 1 ? str(", ", a.groups, " groups") : "", ", ", type,
               type == DType::kFloat32 && sums == Sums::kProducts ? ", tf32" : "");
  };
  return Dnn::of(queue).plan(key, sums, text, describe);
}

bool takes(DType a, DType b) { return a == b && (is_narrow(a) || a == DType::kFloat32); }

// out (+)= from, element by element, of possibly another type.
void finish(CudaQueue& queue, void* out, DType dtype, void* from, DType from_dtype, int64_t n, bool accumulate) {
  PointwiseArgs p;
  p.numel = n, p.dims = 1, p.sizes[0] = n;
  p.outs = 1, p.ins = accumulate ? 2 : 1;
  p.out[0] = {out, dtype, {1}};
  p.in[0] = {from, from_dtype, {1}};
  p.in[1] = p.out[0];
  queue.kernels().pointwise(queue, accumulate ? PointwiseOp::kAdd : PointwiseOp::kCopy, p);
}

void add_bias(CudaQueue& queue, const ConvArgs& a) {
  PointwiseArgs p;
  p.dims = 2, p.sizes[0] = a.images * a.out_height * a.out_width, p.sizes[1] = a.out_channels;
  p.numel = p.sizes[0] * p.sizes[1];
  p.outs = 1, p.ins = 2;
  p.out[0] = p.in[0] = {a.y, a.y_dtype, {a.out_channels, 1}};
  p.in[1] = {const_cast<void*>(a.bias), a.bias_dtype, {0, 1}};
  queue.kernels().pointwise(queue, PointwiseOp::kAdd, p);
}

// One gradient, of type `type` as its inputs are: into its memory, or by way of scratch.
bool gradient_by_dnn(CudaQueue& queue, Kind kind, const ConvArgs& a, Name name, void* gradient, DType dtype,
                     Pointers pointers, DType type) {
  const Plan& plan = conv_plan(queue, kind, a, type);
  if (!plan.graph) return false;
  const ConvSizes s(a);
  const int64_t n = count(name == kX ? s.x : s.weight);
  const bool direct = !a.accumulate && type == dtype && is_aligned(gradient);
  void* const to = direct ? gradient : queue.scratch_memory(3, n * size_of(type));
  pointers[name] = to;
  Dnn::of(queue).run(queue, plan, pointers, "a convolution's gradient");
  if (!direct) finish(queue, gradient, dtype, to, type, n, a.accumulate);
  return true;
}

// The heads of queries or of keys: how many, and at how many positions.
struct HeadSizes {
  int64_t heads, time;
};
HeadSizes query_sizes(const AttentionArgs& a) { return {a.heads, a.time}; }
HeadSizes key_sizes(const AttentionArgs& a) { return {a.kv_heads, a.key_time()}; }

// [batch, heads, time, dim] as it lies in memory.
Tensor_attributes head_attributes(Name name, const AttentionArgs& a, const HeadSizes& s, int64_t stride) {
  return Tensor_attributes()
      .set_uid(name)
      .set_dim({a.batch, s.heads, s.time, a.dim})
      .set_stride({s.time * stride, a.dim, stride, 1})
      .set_data_type(type_of(a.dtype));
}
void make_heads_output(const Node& node, Name name, const AttentionArgs& a, const HeadSizes& s, int64_t stride) {
  node->set_output(true)
      .set_uid(name)
      .set_dim({a.batch, s.heads, s.time, a.dim})
      .set_stride({s.time * stride, a.dim, stride, 1})
      .set_data_type(type_of(a.dtype));
}

// Bytes from the first element of the heads to behind the last.
int64_t bytes_of(const AttentionArgs& a, int64_t stride, const HeadSizes& s) {
  return ((a.batch * s.time - 1) * stride + s.heads * a.dim) * size_of(a.dtype);
}

// Log-sum-exp of scaled scores, to base e: the same as ours.
Sizes stats_sizes(const AttentionArgs& a) { return {a.batch, a.heads, a.time, 1}; }
Sizes stats_strides(const AttentionArgs& a) { return {a.heads * a.time, a.time, 1, 1}; }

bool has_mask(const AttentionArgs& a) { return a.documents || a.lengths; }

// What both directions share; a window counts the query's own key, as ours does. Documents and lengths are a table that
// is added to the scores. cuDNN's ragged layout is not used: on sm_80 its gradient cannot be deterministic, and on
// sm_90 it asks for the scores of each document at the full length of a row.
template <class Attributes>
Attributes masked(Graph& graph, const AttentionArgs& a) {
  Attributes out;
  out.set_causal_mask(a.causal).set_attn_scale(static_cast<float>(a.scale));
  if (a.window > 0) out.set_sliding_window_length(narrow<int>(a.window));
  const int64_t row = mask_stride(a), sample = a.time * row;
  if (has_mask(a))
    out.set_bias(graph.tensor(Tensor_attributes()
                                  .set_uid(kMask)
                                  .set_dim({a.batch, 1, a.time, a.key_time()})
                                  .set_stride({sample, sample, row, 1})
                                  .set_data_type(type_of(a.dtype))));
  return out;
}

void describe_attention(Graph& graph, const HeadGroup& a, fe::AttentionImplementation_t by) {
  auto [y, stats] =
      graph.sdpa(graph.tensor(head_attributes(kQ, a, query_sizes(a), a.q.stride)),
                 graph.tensor(head_attributes(kK, a, key_sizes(a), a.k.stride)),
                 graph.tensor(head_attributes(kV, a, key_sizes(a), a.v.stride)),
                 masked<fe::graph::SDPA_attributes>(graph, a).set_generate_stats(true).set_implementation(by));
  make_heads_output(y, kY, a, query_sizes(a), a.width);
  stats->set_output(true)
      .set_uid(kStats)
      .set_dim(stats_sizes(a))
      .set_stride(stats_strides(a))
      .set_data_type(fe::DataType_t::FLOAT);
}

void describe_attention_backward(Graph& graph, const HeadGroup& a, bool fast) {
  const Node stats = graph.tensor(Tensor_attributes()
                                      .set_uid(kStats)
                                      .set_dim(stats_sizes(a))
                                      .set_stride(stats_strides(a))
                                      .set_data_type(fe::DataType_t::FLOAT));
  auto [dq, dk, dv] =
      graph.sdpa_backward(graph.tensor(head_attributes(kQ, a, query_sizes(a), a.q.stride)),
                          graph.tensor(head_attributes(kK, a, key_sizes(a), a.k.stride)),
                          graph.tensor(head_attributes(kV, a, key_sizes(a), a.v.stride)),
                          graph.tensor(head_attributes(kY, a, query_sizes(a), a.width)),
                          graph.tensor(head_attributes(kDy, a, query_sizes(a), a.width)), stats,
                          masked<fe::graph::SDPA_backward_attributes>(graph, a).set_deterministic_algorithm(!fast));
  make_heads_output(dq, kDq, a, query_sizes(a), a.dq.stride);
  make_heads_output(dk, kDk, a, key_sizes(a), a.dk.stride);
  make_heads_output(dv, kDv, a, key_sizes(a), a.dv.stride);
}

Key key_of(Kind kind, const HeadGroup& a, int64_t more) {
  const float scale = static_cast<float>(a.scale);
  int32_t scale_bits = 0;
  memcpy(&scale_bits, &scale, sizeof scale);
  return {static_cast<int64_t>(kind),
          static_cast<int64_t>(a.dtype),
          a.batch,
          a.time,
          a.key_time(),
          a.heads,
          a.kv_heads,
          a.dim,
          a.window,
          a.causal,
          a.q.stride,
          a.k.stride,
          a.v.stride,
          a.dq.stride,
          a.dk.stride,
          a.dv.stride,
          a.width,
          scale_bits,
          more};
}

std::string text_of(Kind kind, const AttentionArgs& a) {
  const bool forward = kind == Kind::kAttention || kind == Kind::kOurAttention;
  return str(forward ? "attention" : "attention's gradient", " of ", a.batch, " x ", a.time, " x ", a.heads, " x ",
             a.dim, a.kv_heads == a.heads ? "" : str(", ", a.kv_heads, " heads of keys"),
             a.key_time() == a.time ? "" : str(", ", a.key_time(), " keys"),
             a.window > 0 ? str(", window ", a.window) : "", has_mask(a) ? ", masked" : "", ", ", a.dtype);
}

const Plan& attention_plan(CudaQueue& queue, Kind kind, const HeadGroup& a) {
  const bool fast = queue.is_fast() || switches().fast_attention;
  const auto text = [&] { return str(text_of(kind, a), fast ? ", fast" : ""); };
  const Key key = key_of(kind, a, (fast ? 1 : 0) | (has_mask(a) ? 2 : 0));
  Dnn& dnn = Dnn::of(queue);
  if (kind == Kind::kAttentionBackward)
    return dnn.plan(key, Sums::kAttention, text, [&](Graph& graph) { describe_attention_backward(graph, a, fast); });
  // The frontend's own choice looks at the version alone, and not at the GPU.
  const auto by = [&](fe::AttentionImplementation_t which) {
    return [&a, which](Graph& graph) { describe_attention(graph, a, which); };
  };
  return dnn.plan(key, Sums::kAttention, text, by(fe::AttentionImplementation_t::AUTO),
                  by(fe::AttentionImplementation_t::COMPOSITE));
}

// Why cuDNN is not asked: the place in kReasons; 0 where it is. Its dropout draws other numbers.
constexpr const char* kReasons[] = {"",
                                    "several documents in a row",
                                    "samples of several lengths",
                                    "queries that follow cached keys",
                                    "dropout by our random numbers",
                                    "a mask that is too large",
                                    "this type",
                                    "capped scores"};
int reason_of(const CudaQueue& queue, const AttentionArgs& a) {
  if (!is_narrow(a.dtype)) return 6;
  if (a.score_cap > 0) return 7;
  if (a.starts) return 3;
  if (a.drop_probability > 0) return 4;
  if (!has_mask(a)) return 0;
  if (!queue.trusted_masks().contains(kind_of(a))) return a.documents ? 1 : 2;
  return mask_bytes(a) / a.batch > attention_score_bytes() ? 5 : 0;
}

// Whether kernels of our own are to serve, which of 16-bit types is an order of magnitude slower: that is said at once.
bool is_ours(CudaQueue& queue, Kind kind, const HeadGroup& a) {
  const int reason = reason_of(queue, a);
  if (reason != 0 && is_narrow(a.dtype)) {
    const auto text = [&] { return str(text_of(kind, a), ", with ", kReasons[reason]); };
    Dnn::of(queue).warn_of_ours(key_of(kind, a, reason), text);
  }
  return reason != 0;
}

bool is_empty(const AttentionArgs& a) { return a.batch * a.time * a.heads * a.dim == 0; }

// Adds the mask of these samples, if they have one, to what a graph is given.
void add_mask(CudaQueue& queue, const HeadGroup& a, Pointers& pointers) {
  if (!has_mask(a)) return;
  pointers[kMask] = queue.scratch_memory(kMaskSlot, mask_bytes(a));
  attention_mask(queue, a, pointers[kMask]);
}

void run_forward(CudaQueue& queue, const Plan& plan, const HeadGroup& a) {
  const int64_t bytes = a.batch * a.time * a.width * size_of(a.dtype);
  const auto [q, k, v] = aligned_inputs<3>(queue, {{{a.q.data, bytes_of(a, a.q.stride, query_sizes(a))},
                                                    {a.k.data, bytes_of(a, a.k.stride, key_sizes(a))},
                                                    {a.v.data, bytes_of(a, a.v.stride, key_sizes(a))}}});
  void* const y = aligned_out(queue, a.y, bytes, 1);
  Pointers pointers{{kQ, q}, {kK, k}, {kV, v}, {kY, y}, {kStats, a.lse}};
  add_mask(queue, a, pointers);
  Dnn::of(queue).run(queue, plan, pointers, "attention");
  if (y != a.y) queue.copy(a.y, y, bytes);
}

void run_backward(CudaQueue& queue, const Plan& plan, const HeadGroup& a) {
  const auto [q, k, v, y, dy] = aligned_inputs<5>(queue, {{{a.q.data, bytes_of(a, a.q.stride, query_sizes(a))},
                                                           {a.k.data, bytes_of(a, a.k.stride, key_sizes(a))},
                                                           {a.v.data, bytes_of(a, a.v.stride, key_sizes(a))},
                                                           {a.y, bytes_of(a, a.width, query_sizes(a))},
                                                           {a.dy, bytes_of(a, a.width, query_sizes(a))}}});
  check(is_aligned(a.dq.data) && is_aligned(a.dk.data) && is_aligned(a.dv.data),
        "attention's gradient into memory that is not aligned to 16 bytes");  // the operation allocates it
  Pointers pointers{{kQ, q},         {kK, k},          {kV, v},          {kY, y},         {kDy, dy},
                    {kStats, a.lse}, {kDq, a.dq.data}, {kDk, a.dk.data}, {kDv, a.dv.data}};
  add_mask(queue, a, pointers);
  Dnn::of(queue).run(queue, plan, pointers, "attention's gradient");
}

// All portions by cuDNN, or nothing where it has no plan of one.
using RunPortion = void (*)(CudaQueue&, const Plan&, const HeadGroup&);
bool run_all(CudaQueue& queue, Kind kind, const std::vector<HeadGroup>& portions, RunPortion run) {
  std::vector<const Plan*> plans;
  for (const HeadGroup& portion : portions) {
    plans.push_back(&attention_plan(queue, kind, portion));
    if (!plans.back()->graph) return false;
  }
  for (size_t i = 0; i < portions.size(); ++i) run(queue, *plans[i], portions[i]);
  return true;
}

}  // namespace

void conv(Parallel& parallel, const ConvArgs& a) {
  CudaQueue& queue = cuda_queue(parallel);
  const ConvSizes s(a);
  if (count(s.y) == 0) return;
  if (!takes(a.x_dtype, a.weight_dtype) || a.y_dtype != a.x_dtype) return patch_conv(parallel, a);
  const DType t = a.x_dtype;
  const bool takes_bias = a.bias && (a.bias_dtype == t || a.bias_dtype == DType::kFloat32);
  const Plan* plan = takes_bias ? &conv_plan(queue, Kind::kConvWithBias, a, t) : nullptr;
  const bool bias_inside = plan && plan->graph;
  if (!bias_inside) plan = &conv_plan(queue, Kind::kConv, a, t);
  if (!plan->graph) return patch_conv(parallel, a);
  void* const y = aligned_out(queue, a.y, count(s.y) * size_of(t), 2);
  Pointers pointers{{kX, aligned_in(queue, a.x, count(s.x) * size_of(t), 0)},
                    {kWeight, aligned_in(queue, a.weight, count(s.weight) * size_of(t), 1)},
                    {kY, y}};
  if (bias_inside) pointers[kBias] = aligned_in(queue, a.bias, a.out_channels * size_of(a.bias_dtype), 3);
  Dnn::of(queue).run(queue, *plan, pointers, "a convolution");
  if (y != a.y) queue.copy(a.y, y, count(s.y) * size_of(t));
  if (a.bias && !bias_inside) add_bias(queue, a);
}

void conv_backward_input(Parallel& parallel, const ConvArgs& a) {
  CudaQueue& queue = cuda_queue(parallel);
  const ConvSizes s(a);
  if (count(s.x) == 0) return;
  const DType t = a.y_dtype;
  if (takes(t, a.weight_dtype) && (a.x_dtype == t || a.x_dtype == DType::kFloat32)) {
    const Pointers inputs{{kY, aligned_in(queue, a.y, count(s.y) * size_of(t), 0)},
                          {kWeight, aligned_in(queue, a.weight, count(s.weight) * size_of(t), 1)}};
    if (gradient_by_dnn(queue, Kind::kConvBackwardInput, a, kX, a.x, a.x_dtype, inputs, t)) return;
  }
  patch_conv_backward_input(parallel, a);
}

void conv_backward_weight(Parallel& parallel, const ConvArgs& a) {
  CudaQueue& queue = cuda_queue(parallel);
  const ConvSizes s(a);
  const DType t = a.x_dtype;
  if (count(s.y) != 0 && takes(t, a.y_dtype) && (a.weight_dtype == t || a.weight_dtype == DType::kFloat32)) {
    const Pointers inputs{{kY, aligned_in(queue, a.y, count(s.y) * size_of(t), 0)},
                          {kX, aligned_in(queue, a.x, count(s.x) * size_of(t), 1)}};
    if (gradient_by_dnn(queue, Kind::kConvBackwardWeight, a, kWeight, a.weight, a.weight_dtype, inputs, t)) return;
  }
  patch_conv_backward_weight(parallel, a);
}

void attention(Parallel& parallel, const AttentionArgs& a) {
  if (is_empty(a)) return;
  CudaQueue& queue = cuda_queue(parallel);
  if (is_ours(queue, Kind::kOurAttention, all_heads(a))) return tiled_attention(parallel, a);
  const std::vector<HeadGroup> portions = has_mask(a) ? masked_portions(a) : std::vector{all_heads(a)};
  if (!run_all(queue, Kind::kAttention, portions, run_forward)) tiled_attention(parallel, a);
}

void attention_backward(Parallel& parallel, const AttentionArgs& a) {
  if (is_empty(a)) return;
  CudaQueue& queue = cuda_queue(parallel);
  if (is_ours(queue, Kind::kOurAttentionBackward, all_heads(a))) return tiled_attention_backward(parallel, a);
  if (!run_all(queue, Kind::kAttentionBackward, backward_portions(a), run_backward))
    tiled_attention_backward(parallel, a);
}

namespace {

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

}  // namespace

bool takes_card_for_plans() { return cudnnGetVersion() >= 90800; }

PlanThere attention_plan_on(const CardForPlans& card, const AttentionArgs& args, bool gradient) {
  const HeadGroup a = all_heads(args);
  if (gradient)
    return plan_on(card, Sums::kAttention,
                   [&](Graph& graph) { describe_attention_backward(graph, a, /*fast=*/false); });
  const auto by = [&](fe::AttentionImplementation_t which) {
    return [&a, which](Graph& graph) { describe_attention(graph, a, which); };
  };
  return plan_on(card, Sums::kAttention, by(fe::AttentionImplementation_t::AUTO),
                 by(fe::AttentionImplementation_t::COMPOSITE));
}

PlanThere conv_plan_on(const CardForPlans& card, const ConvArgs& a, ConvPart part) {
  constexpr Kind kKinds[] = {Kind::kConv, Kind::kConvWithBias, Kind::kConvBackwardInput, Kind::kConvBackwardWeight};
  const Sums sums = is_narrow(a.x_dtype) ? Sums::kProducts : Sums::kFp32Products;
  return plan_on(card, sums,
                 [&](Graph& graph) { describe_conv(graph, kKinds[static_cast<size_t>(part)], a, a.x_dtype); });
}

}  // namespace lockstep::cuda
