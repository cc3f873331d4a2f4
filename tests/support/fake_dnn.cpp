#include "tests/support/fake_dnn.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/error.h"
#include "core/base/partition.h"
#include "core/device/thread_pool.h"
#include "core/kernels/kernels.h"
#include "core/kernels/stage.h"

struct cudnnContext {
  bool has_stream = false;
};

using lockstep::testing::fake_dnn;

size_t cudnnGetVersion() { return fake_dnn().version; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "an error"; }
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  ++fake_dnn().handles, ++fake_dnn().made;
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t) {
  handle->has_stream = true;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  --fake_dnn().handles;
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

namespace lockstep::testing {

FakeDnn& fake_dnn() {
  static FakeDnn fake;
  return fake;
}

}  // namespace lockstep::testing

namespace cudnn_frontend::graph {
namespace {

using lockstep::AttentionArgs;
using lockstep::check;
using lockstep::ConvArgs;
using lockstep::DType;
using lockstep::HeadRows;
using lockstep::round_up;
using lockstep::size_of;
using lockstep::str;

DType type_of(DataType_t type) {
  return type == DataType_t::BFLOAT16 ? DType::kBFloat16 : type == DataType_t::HALF ? DType::kFloat16 : DType::kFloat32;
}

template <class Args>
void on_cpu(void (*kernel)(lockstep::Parallel&, const Args&), const Args& args) {
  lockstep::ThreadPool pool(1);
  kernel(pool, args);
}

void* at(const Pointers& pointers, const Node& node) {
  void* data = pointers.at(node->uid);
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0)
    fake_dnn().misuse.push_back(str("tensor ", node->uid, " is not aligned"));
  return data;
}

HeadRows rows_of(const Pointers& pointers, const Node& node) {
  const Sizes &dim = node->dim, &stride = node->stride;
  check(stride[0] == dim[2] * stride[2] && stride[1] == dim[3] && stride[3] == 1, "heads that lie otherwise");
  return {at(pointers, node), stride[2]};
}

// [batch, time, heads * dim] without what may lie between the rows, which the kernels do not know.
class DenseRows {
 public:
  DenseRows(const Pointers& pointers, const Node& node)
      : rows_(rows_of(pointers, node)),
        count_(node->dim[0] * node->dim[2]),
        bytes_(node->dim[1] * node->dim[3] * size_of(type_of(node->type))),
        stride_(rows_.stride * size_of(type_of(node->type))),
        memory_(static_cast<size_t>(count_ * bytes_) + 64) {}
  void* data() { return memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64; }
  void read() {
    for (int64_t i = 0; i < count_; ++i) memcpy(dense(i), stored(i), static_cast<size_t>(bytes_));
  }
  void write() {
    for (int64_t i = 0; i < count_; ++i) memcpy(stored(i), dense(i), static_cast<size_t>(bytes_));
  }

 private:
  char* dense(int64_t row) { return static_cast<char*>(data()) + row * bytes_; }
  char* stored(int64_t row) { return static_cast<char*>(rows_.data) + row * stride_; }

  HeadRows rows_;
  int64_t count_, bytes_, stride_;
  std::vector<char> memory_;
};

AttentionArgs attention_args(const Node& q, const Node& k, const Attention_attributes& how) {
  AttentionArgs a;
  a.batch = q->dim[0], a.heads = q->dim[1], a.time = q->dim[2], a.dim = q->dim[3], a.kv_heads = k->dim[1];
  a.keys = k->dim[2] == a.time ? 0 : k->dim[2];
  a.causal = how.causal, a.window = fake_dnn().ignores_windows ? 0 : how.window, a.scale = how.scale,
  a.dtype = type_of(q->type);
  return a;
}

// What a table that is added to the scores says, in the kernels' words: the documents and the length of each sample.
class Mask {
 public:
  Mask(const Pointers& pointers, const Node& node, AttentionArgs& a) {
    if (!node) return;
    const int64_t queries = node->dim[2], keys = node->dim[3];
    check(node->dim[0] == a.batch && node->dim[1] == 1 && queries == a.time && keys == a.key_time(), "another mask");
    const auto* const table = static_cast<const char*>(at(pointers, node));
    const auto seen = [&](int64_t sample, int64_t query, int64_t key) {
      const int64_t i = sample * node->stride[0] + query * node->stride[2] + key;
      const double value = lockstep::load_element<double>(table, type_of(node->type), i);
      if (value != 0 && !(value <= -60000 && value > -1e31)) fake_dnn().misuse.push_back(str("a mask of ", value));
      return value == 0;
    };
    for (int64_t s = 0; s < a.batch; ++s) {
      int32_t length = 0;
      for (int64_t k = 0; k < keys; ++k) length += keys == queries ? seen(s, k, k) : seen(s, 0, k);
      lengths_.push_back(length);
      for (int64_t q = 0; q < queries; ++q) {
        int32_t first = 0;  // of one document all see the same first key
        while (first < keys - 1 && !seen(s, q, first)) ++first;
        documents_.push_back(first);
      }
      for (int64_t q = 0; q < queries; ++q)
        for (int64_t k = 0; k < keys; ++k) {
          const bool same = length < keys || document(s * queries + q) == document(s * queries + k);
          if (seen(s, q, k) != (same && k < length)) fake_dnn().misuse.push_back("a mask of neither kind");
        }
    }
    const bool has_lengths = std::any_of(lengths_.begin(), lengths_.end(), [&](int32_t l) { return l < keys; });
    if (fake_dnn().ignores_masks) return;
    if (has_lengths) a.lengths = lengths_.data();
    else if (keys == queries) a.documents = documents_.data();
  }

 private:
  int32_t document(int64_t i) const { return documents_[static_cast<size_t>(i)]; }

  std::vector<int32_t> lengths_, documents_;
};

// A wrong bit in the first element, where a test plants one.
void spoil(void* data) {
  if (fake_dnn().spoils_next && --fake_dnn().spoils_next == 0) *static_cast<char*>(data) ^= 1;
}

// Sizes in cuDNN's order: images, channels, height, width.
ConvArgs conv_args(const Node& x, const Node& weight, const Node& y, const Sizes& padding, const Sizes& stride,
                   const Sizes& dilation) {
  ConvArgs a;
  a.images = x->dim[0], a.in_channels = x->dim[1], a.height = x->dim[2], a.width = x->dim[3];
  a.out_channels = weight->dim[0], a.kernel_h = weight->dim[2], a.kernel_w = weight->dim[3];
  a.groups = a.in_channels / weight->dim[1];
  a.out_height = y->dim[2], a.out_width = y->dim[3];
  a.padding = padding[0], a.stride = stride[0], a.dilation = dilation[0];
  a.x_dtype = type_of(x->type), a.weight_dtype = type_of(weight->type), a.y_dtype = type_of(y->type);
  return a;
}

const char* name_of(AttentionImplementation_t by) {
  return by == AttentionImplementation_t::AUTO        ? "AUTO"
         : by == AttentionImplementation_t::COMPOSITE ? "COMPOSITE"
                                                      : "UNIFIED";
}

}  // namespace

Graph& Graph::deselect_numeric_notes(const std::vector<NumericalNote_t>&) { return *this; }
Graph& Graph::deselect_workspace_greater_than(int64_t) { return *this; }

Node Graph::conv_fprop(Node x, Node weight, Conv_fprop_attributes how) {
  name_ = "convolution";
  result_ = std::make_shared<Tensor_attributes>();
  work_ = [this, x, weight, how](const Pointers& pointers) {
    ConvArgs a = conv_args(x, weight, result_, how.padding, how.stride, how.dilation);
    a.x = at(pointers, x), a.weight = at(pointers, weight), a.y = at(pointers, result_);
    if (bias_) a.bias = at(pointers, bias_), a.bias_dtype = type_of(bias_->type);
    on_cpu(lockstep::kernels().conv, a);
  };
  return result_;
}

Node Graph::pointwise(Node, Node bias, Pointwise_attributes) {
  name_ += " and bias";
  bias_ = bias;
  return result_ = std::make_shared<Tensor_attributes>();
}

Node Graph::conv_dgrad(Node dy, Node weight, Conv_dgrad_attributes how) {
  name_ = "convolution's input gradient";
  result_ = std::make_shared<Tensor_attributes>();
  work_ = [this, dy, weight, how](const Pointers& pointers) {
    ConvArgs a = conv_args(result_, weight, dy, how.padding, how.stride, how.dilation);
    a.x = at(pointers, result_), a.weight = at(pointers, weight), a.y = at(pointers, dy);
    on_cpu(lockstep::kernels().conv_backward_input, a);
  };
  return result_;
}

Node Graph::conv_wgrad(Node dy, Node x, Conv_wgrad_attributes how) {
  name_ = "convolution's weight gradient";
  result_ = std::make_shared<Tensor_attributes>();
  work_ = [this, dy, x, how](const Pointers& pointers) {
    ConvArgs a = conv_args(x, result_, dy, how.padding, how.stride, how.dilation);
    a.x = at(pointers, x), a.weight = at(pointers, result_), a.y = at(pointers, dy);
    on_cpu(lockstep::kernels().conv_backward_weight, a);
  };
  return result_;
}

std::array<Node, 2> Graph::sdpa(Node q, Node k, Node v, SDPA_attributes how) {
  name_ = str(how.bias ? "masked " : "", "attention by ", name_of(how.implementation));
  const auto y = std::make_shared<Tensor_attributes>(), stats = std::make_shared<Tensor_attributes>();
  work_ = [q, k, v, how, y, stats](const Pointers& pointers) {
    AttentionArgs a = attention_args(q, k, how);
    a.q = rows_of(pointers, q), a.k = rows_of(pointers, k), a.v = rows_of(pointers, v);
    const Mask mask(pointers, how.bias, a);
    DenseRows out(pointers, y);
    a.y = out.data(), a.lse = pointers.at(stats->uid);
    on_cpu(lockstep::kernels().attention, a);
    spoil(a.y);
    out.write();
  };
  return {y, stats};
}

std::array<Node, 3> Graph::sdpa_backward(Node q, Node k, Node v, Node y, Node dy, Node stats,
                                         SDPA_backward_attributes how) {
  name_ = how.bias ? "masked attention's gradient" : "attention's gradient";
  std::array<Node, 3> out;
  for (Node& gradient : out) gradient = std::make_shared<Tensor_attributes>();
  if (how.deterministic)
    workspace_ =
        q->dim[0] * q->dim[1] * round_up(q->dim[2], 128) * round_up(k->dim[2], 128) * size_of(type_of(q->type));
  work_ = [q, k, v, y, dy, stats, how, out](const Pointers& pointers) {
    AttentionArgs a = attention_args(q, k, how);
    a.q = rows_of(pointers, q), a.k = rows_of(pointers, k), a.v = rows_of(pointers, v);
    a.dq = rows_of(pointers, out[0]), a.dk = rows_of(pointers, out[1]), a.dv = rows_of(pointers, out[2]);
    const Mask mask(pointers, how.bias, a);
    DenseRows result(pointers, y), gradient(pointers, dy);
    result.read(), gradient.read();
    a.y = result.data(), a.dy = gradient.data(), a.lse = at(pointers, stats);
    on_cpu(lockstep::kernels().attention_backward, a);
  };
  return out;
}

error_t Graph::next(int stage, const char* call) {
  if (++stage_ != stage) fake_dnn().misuse.push_back(str(call, " out of order"));
  return {};
}
error_t Graph::validate() { return next(1, "validate"); }
error_t Graph::build_operation_graph(cudnnHandle_t) { return next(2, "build_operation_graph"); }
error_t Graph::create_execution_plans(const std::vector<HeurMode_t>&) { return next(3, "create_execution_plans"); }
error_t Graph::check_support() {
  fake_dnn().built.push_back(name_);
  if (fake_dnn().refused.contains(name_)) return {"no engine of " + name_ + " on this GPU\nand hundreds of lines more"};
  return next(4, "check_support");
}
error_t Graph::build_plans(BuildPlanPolicy_t) { return next(5, "build_plans"); }
error_t Graph::get_workspace_size(int64_t& bytes) const {
  bytes = workspace_;
  return {};
}
error_t Graph::get_plan_name(std::string& name) const {
  name = "engine of " + name_;
  return {};
}

error_t Graph::execute(cudnnHandle_t handle, const Pointers& pointers, void*) const {
  if (!handle->has_stream) fake_dnn().misuse.push_back("a handle without a stream");
  if (stage_ != 5) fake_dnn().misuse.push_back("a graph that was not built runs");
  fake_dnn().ran.push_back(name_);
  fake_dnn().most_workspace = std::max(fake_dnn().most_workspace, workspace_);
  work_(pointers);
  return {};
}

}  // namespace cudnn_frontend::graph
