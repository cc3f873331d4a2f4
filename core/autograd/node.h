// The autograd graph: a Node for each operation whose result needs a gradient, with its backward closure. A node is
// owned by the tensor that it computed and by the nodes that use this tensor. backward() releases each closure, and
// with it the tensors that it saved, once it has run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"

namespace lockstep {

using CallSite = std::source_location;  // of the call in the forward pass, for error messages and anomaly mode

class Gradients;
class BackwardPass;
// Computes the inputs' gradients from that of the result. It keeps tensors as Saved, so that later writes to them are
// noticed.
using Backward = std::function<void(const Tensor& grad, Gradients& grads)>;

struct Node {
  const char* name = "";
  CallSite place;
  std::string_view memory_for;                // Context::memory_for of the forward pass
  uint64_t sequence = 0;                      // order of creation; leaves have the highest, so backward runs them first
  std::vector<std::shared_ptr<Node>> inputs;  // null where an input needs no gradient
  Backward backward;                          // empty for leaves
  std::weak_ptr<AutogradRecord> leaf;

  // Shape and type of the result, for allocating its gradient.
  Shape shape;
  DType dtype = DType::kFloat32;

  // State of one backward pass.
  int pending = 0;
  bool visited = false;
  Tensor grad;
  bool grad_owned = false;  // false: shared with another tensor, so it must not be added to in place

  ~Node();  // iterative: a deep graph must not recurse
};

struct AutogradRecord {
  bool requires_grad = false;
  std::shared_ptr<Node> node;  // the operation that computed the tensor; of a leaf, a node without inputs
  // Leaves only:
  Tensor grad;                        // undefined until the first contribution
  Tensor grad_buffer;                 // if set, `grad` uses this memory; the first contribution overwrites it
  std::function<void()> before_grad;  // called before the first contribution if grad_buffer is not allocated
  std::function<void()> on_grad;      // called once in a backward pass, when the gradient is complete
};

// Where a backward closure puts the gradients of its inputs, by index. Contributions to one tensor are added in the
// order of the backward pass, which is fixed.
class Gradients {
 public:
  Gradients(Node& node, BackwardPass& pass) : node_(node), pass_(pass) {}
  // Type of input i's gradient: that of the input, but fp32 for a bf16 or fp16 leaf. add() and pass() convert to it, so
  // only closures that accumulate sums themselves need it.
  DType dtype(int i) const { return node_.inputs[static_cast<size_t>(i)]->dtype; }
  // Whether input i needs a gradient.
  bool wanted(int i) const { return node_.inputs[static_cast<size_t>(i)] != nullptr; }
  // Contributes a tensor that the closure allocated and does not use any more.
  void add(int i, const Tensor& gradient);
  // Contributes the incoming gradient itself, or a view of it, which other nodes may share.
  void pass(int i, const Tensor& gradient);
  // Memory for the closure to write the contribution to; if `accumulate` is set to true, to add it to.
  Tensor target(int i, bool& accumulate);
  // The closure writes out = addend + contribution. The addend is undefined for the first contribution, and may be the
  // same memory as `out`.
  struct Sum {
    Tensor out, addend;
  };
  Sum sum_target(int i);
  // For recomputation: the closure recorded a new graph from its inputs to `result`, and backward continues through it
  // with `gradient` for the result. Throws ExitCode::kInternal if that graph uses other recorded tensors.
  void pass_through(const Tensor& result, const Tensor& gradient);

 private:
  Node& node_;
  BackwardPass& pass_;
};

// The node of a tensor that requires a gradient, or null.
inline Node* grad_node(const Tensor& t) {
  return t.record() && t.record()->requires_grad ? t.record()->node.get() : nullptr;
}

// Makes `t` a leaf, a tensor that keeps its gradient. Returns t.
Tensor& require_grad(Tensor& t, bool on = true);
bool requires_grad(const Tensor& t);
// Whether operations see that leaf as one: off, they record nothing for it, and it keeps what it has.
void set_requires_grad(const Tensor& leaf, bool on);
// The gradient of a leaf; undefined before the first contribution.
Tensor grad_of(const Tensor& leaf);
void clear_grad(const Tensor& leaf);

// Whether an operation on these inputs would be recorded.
bool recording(std::initializer_list<const Tensor*> inputs);

// Every differentiable operation ends with this: it checks the result in anomaly mode and, if an input needs a
// gradient, records a node with the closure. Returns `out`.
Tensor result_of(const char* name, CallSite place, Tensor out, std::initializer_list<const Tensor*> inputs,
                 Backward backward);
Tensor result_of(const char* name, CallSite place, Tensor out, const std::vector<const Tensor*>& inputs,
                 Backward backward);

// A tensor kept for the backward pass. get() throws ExitCode::kInternal, naming the operation `op` that saved it, if it
// was written in the meantime.
class Saved {
 public:
  Saved() = default;
  explicit Saved(const Tensor& t)
      : tensor_(t.defined() ? t.detach() : t), version_(t.defined() ? t.storage()->version() : 0) {}
  const Tensor& get(const char* op) const;
  bool unshared() const { return tensor_.unshared(); }

 private:
  Tensor tensor_;
  uint64_t version_ = 0;
};

// Runs the backward pass from `root` (one element; `seed` is its gradient), latest operation first, without recursion.
// A leaf's on_grad is called as soon as its last contribution is added. Closures are released as they have run.
void backward(const Tensor& root, double seed = 1.0);

// The identity; its backward pass calls hook() first. Implements the hook before_backward of modules.
Tensor with_backward_hook(const Tensor& t, std::function<void()> hook, CallSite place = CallSite::current());

// Computes forward(inputs) and saves only the inputs (activation checkpointing; Chen et al., "Training Deep Nets with
// Sublinear Memory Cost", 2016): the backward pass runs forward() again, with the same random numbers, and continues
// through the graph that this records. Same bits, same hooks, less memory, one more forward pass. `parameters`: all
// other tensors with a gradient that forward() reads; neither they nor the inputs may be written before the backward
// pass. forward() must depend on the inputs and these alone, and gradients flow through its result alone.
using ForwardPass = std::function<Tensor(const std::vector<Tensor>& inputs)>;
Tensor recomputed(const std::vector<Tensor>& inputs, const std::vector<Tensor>& parameters, ForwardPass forward,
                  CallSite place = CallSite::current());
// The same of one input.
inline Tensor recomputed(const Tensor& x, const std::vector<Tensor>& parameters,
                         std::function<Tensor(const Tensor&)> forward, CallSite place = CallSite::current()) {
  return recomputed(
      std::vector<Tensor>{x}, parameters,
      [forward = std::move(forward)](const std::vector<Tensor>& inputs) { return forward(inputs[0]); }, place);
}

}  // namespace lockstep
