// A stand-in for cuDNN and its frontend's graph interface, as far as core/device/cuda/dnn_*.cpp use it: a graph is
// described, validated, built and executed as there, by the CPU's kernels on the addresses that execute() is given.
// What cuDNN refuses, how much workspace it asks for and which handles are alive, a test says and sees (fake_dnn.h).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/cuda_stand_in/cuda_runtime.h"

constexpr size_t CUDNN_VERSION = 91900;
enum cudnnStatus_t { CUDNN_STATUS_SUCCESS, CUDNN_STATUS_INTERNAL_ERROR };
struct cudnnContext;
using cudnnHandle_t = cudnnContext*;
size_t cudnnGetVersion();
const char* cudnnGetErrorString(cudnnStatus_t status);
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);

namespace cudnn_frontend {

enum class DataType_t { FLOAT, HALF, BFLOAT16 };
enum class HeurMode_t { A, FALLBACK };
enum class BuildPlanPolicy_t { HEURISTICS_CHOICE };
enum class PointwiseMode_t { ADD };
enum class AttentionImplementation_t { AUTO, COMPOSITE, UNIFIED };
enum class NumericalNote_t {
  TENSOR_CORE,
  NONDETERMINISTIC,
  DOWN_CONVERT_INPUTS,
  REDUCED_PRECISION_REDUCTION,
  FFT,
  WINOGRAD,
  WINOGRAD_TILE_4x4,
  WINOGRAD_TILE_6x6,
  WINOGRAD_TILE_13x13
};

class [[nodiscard]] error_t {
 public:
  error_t(std::string message = "") : message_(std::move(message)) {}
  bool is_good() const { return message_.empty(); }
  const std::string& get_message() const { return message_; }

 private:
  std::string message_;
};

struct DeviceProperties {
  error_t deserialize(const std::vector<uint8_t>&) { return {}; }
};

namespace graph {

using Sizes = std::vector<int64_t>;

struct Tensor_attributes {
  int64_t uid = 0;
  Sizes dim, stride;
  DataType_t type = DataType_t::FLOAT;
  bool is_output = false;

  Tensor_attributes& set_uid(int64_t value) { return uid = value, *this; }
  Tensor_attributes& set_dim(const Sizes& value) { return dim = value, *this; }
  Tensor_attributes& set_stride(const Sizes& value) { return stride = value, *this; }
  Tensor_attributes& set_data_type(DataType_t value) { return type = value, *this; }
  Tensor_attributes& set_output(bool value) { return is_output = value, *this; }
};
using Node = std::shared_ptr<Tensor_attributes>;

template <class Self>
struct Conv_attributes {
  Sizes padding, stride, dilation;
  Self& set_padding(const Sizes& value) { return padding = value, self(); }
  Self& set_stride(const Sizes& value) { return stride = value, self(); }
  Self& set_dilation(const Sizes& value) { return dilation = value, self(); }

 private:
  Self& self() { return static_cast<Self&>(*this); }
};
struct Conv_fprop_attributes : Conv_attributes<Conv_fprop_attributes> {};
struct Conv_dgrad_attributes : Conv_attributes<Conv_dgrad_attributes> {};
struct Conv_wgrad_attributes : Conv_attributes<Conv_wgrad_attributes> {};

struct Pointwise_attributes {
  Pointwise_attributes set_mode(PointwiseMode_t) const { return *this; }
};

struct Attention_attributes {
  std::shared_ptr<Tensor_attributes> bias = nullptr;
  bool causal = false, stats = false, deterministic = false;
  float scale = 1;
  int window = 0;
  AttentionImplementation_t implementation = AttentionImplementation_t::AUTO;
};
template <class Self>
struct Attention_setters : Attention_attributes {
  Self& set_causal_mask(bool value) { return causal = value, self(); }
  Self& set_attn_scale(float value) { return scale = value, self(); }
  Self& set_sliding_window_length(int value) { return window = value, self(); }
  Self& set_bias(std::shared_ptr<Tensor_attributes> value) { return bias = std::move(value), self(); }

 protected:
  Self& self() { return static_cast<Self&>(*this); }
};
struct SDPA_attributes : Attention_setters<SDPA_attributes> {
  SDPA_attributes& set_generate_stats(bool value) { return stats = value, *this; }
  SDPA_attributes& set_implementation(AttentionImplementation_t value) { return implementation = value, *this; }
};
struct SDPA_backward_attributes : Attention_setters<SDPA_backward_attributes> {
  SDPA_backward_attributes& set_deterministic_algorithm(bool value) { return deterministic = value, *this; }
};

using Pointers = std::unordered_map<int64_t, void*>;

class Graph {
 public:
  Graph& set_intermediate_data_type(DataType_t) { return *this; }
  Graph& set_compute_data_type(DataType_t) { return *this; }
  Graph& set_device_properties(std::shared_ptr<const DeviceProperties>) { return *this; }
  Graph& set_sm_version(int32_t) { return *this; }
  Graph& deselect_numeric_notes(const std::vector<NumericalNote_t>& notes);
  Graph& deselect_workspace_greater_than(int64_t bytes);

  Node tensor(const Tensor_attributes& attributes) { return std::make_shared<Tensor_attributes>(attributes); }
  Node conv_fprop(Node x, Node weight, Conv_fprop_attributes how);
  Node conv_dgrad(Node dy, Node weight, Conv_dgrad_attributes how);
  Node conv_wgrad(Node dy, Node x, Conv_wgrad_attributes how);
  Node pointwise(Node a, Node b, Pointwise_attributes);
  std::array<Node, 2> sdpa(Node q, Node k, Node v, SDPA_attributes how);
  std::array<Node, 3> sdpa_backward(Node q, Node k, Node v, Node y, Node dy, Node stats, SDPA_backward_attributes how);

  error_t validate();
  error_t build_operation_graph(cudnnHandle_t handle);
  error_t create_execution_plans(const std::vector<HeurMode_t>& modes);
  error_t check_support();
  error_t build_plans(BuildPlanPolicy_t policy);
  error_t get_workspace_size(int64_t& bytes) const;
  error_t get_plan_name(std::string& name) const;
  error_t execute(cudnnHandle_t handle, const Pointers& pointers, void* workspace) const;

 private:
  error_t next(int stage, const char* call);

  int stage_ = 0;  // of the calls above, which come in this order
  std::string name_;
  Node result_, bias_;  // of a convolution
  int64_t workspace_ = 0;
  std::function<void(const Pointers&)> work_;
};

}  // namespace graph
}  // namespace cudnn_frontend
