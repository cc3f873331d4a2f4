// The autograd graph: a Node for each operation whose result needs a gradient, holding its backward closure.
// Nodes are owned by the tensors that they made and by the nodes that follow; the sweep drops each closure once it has
// run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/tensor.h"

namespace lockstep {

using Place = std::source_location;  // of the forward call, for errors and anomaly mode

class Gradients;
class Sweep;
// (gradient of the result, where the inputs' gradients go)
using Backward = std::function<void(const Tensor& grad, Gradients& grads)>;

struct Node {
  const char* name = "";
  Place place;
  std::string_view memory_for;                // as it was in the forward pass (core/device/context.h)
  uint64_t sequence = 0;                      // order of creation; leaves come last, so that the sweep takes them first
  std::vector<std::shared_ptr<Node>> inputs;  // null where an input needs no gradient
  Backward backward;                          // empty for leaves
  std::weak_ptr<AutogradRecord> leaf;

  // The tensor's shape and type, for gradients not yet begun.
  Shape shape;
  DType dtype = DType::kFloat32;

  // State of one sweep.
  int pending = 0;
  bool visited = false;
  Tensor grad;
  bool grad_owned = false;  // false: also somebody else's tensor, not to be added to in place

  ~Node();  // iterative: a deep graph must not recurse
};

struct AutogradRecord {
  bool requires_grad = false;
  std::shared_ptr<Node> node;  // what made the tensor; for a leaf, the node that stands for it
  // Leaves only:
  Tensor grad;  // undefined until the first contribution
  Tensor
      grad_buffer;  // where set, `grad` is this buffer: bound at the first contribution, and then written, not zeroed
  std::function<void()> before_grad;  // fired where grad_buffer has no bytes yet when the first contribution comes
  std::function<void()> on_grad;      // fired once in a sweep, when the gradient is final
};

// Where a backward closure writes. Contributions to one input are added in the order of the sweep, which is fixed.
class Gradients {
 public:
  Gradients(Node& node, Sweep& sweep) : node_(node), sweep_(sweep) {}
  // What add() and pass() are given may be of another type than input i's gradient, and is converted: a leaf's is fp32
  // where the leaf is bf16 or fp16, else it has the input's type. Only what is summed up on the way wants to know.
  DType dtype(int i) const { return node_.inputs[static_cast<size_t>(i)]->dtype; }
  // Does input i need a gradient?
  bool wanted(int i) const { return node_.inputs[static_cast<size_t>(i)] != nullptr; }
  // A tensor that the closure has made for this and gives away.
  void add(int i, const Tensor& gradient);
  // The incoming gradient itself, or a view of it.
  void pass(int i, const Tensor& gradient);
  // Write here. Where `accumulate` comes back true, add to what is there.
  Tensor target(int i, bool& accumulate);
  // Write out = addend + contribution; addend is undefined at the first contribution, and may be `out` itself.
  struct Sum {
    Tensor out, addend;
  };
  Sum sum_target(int i);
  // `result` was recorded by this closure a moment ago, from its own inputs: the sweep goes on through that graph, with
  // `gradient` for its result. Throws ExitCode::kInternal where the graph leads elsewhere than to these inputs.
  void pass_through(const Tensor& result, const Tensor& gradient);

 private:
  Node& node_;
  Sweep& sweep_;
};

// The record of a tensor that is asked for a gradient, or null.
inline Node* grad_node(const Tensor& t) {
  return t.record() && t.record()->requires_grad ? t.record()->node.get() : nullptr;
}

// Makes `t` a leaf: its gradient is kept. Returns t.
Tensor& require_grad(Tensor& t, bool on = true);
bool requires_grad(const Tensor& t);
// The gradient of a leaf; undefined before the first contribution.
Tensor grad_of(const Tensor& leaf);
void clear_grad(const Tensor& leaf);

// Is a graph being recorded for these inputs?
bool recording(std::initializer_list<const Tensor*> inputs);

// The end of every operation: checks the result in anomaly mode and, where an input needs a gradient, records the
// closure.
Tensor result_of(const char* name, Place place, Tensor out, std::initializer_list<const Tensor*> inputs,
                 Backward backward);
Tensor result_of(const char* name, Place place, Tensor out, const std::vector<const Tensor*>& inputs,
                 Backward backward);

// A tensor kept for the backward pass; get() throws if it was written in the meantime, naming the operation that saved
// it.
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

// Runs backward from `root` (one element; `seed` is its gradient), iteratively, latest operation first; every leaf's
// gradient is final, and its hook fired, as soon as its last contribution is in. Closures are dropped as the sweep
// passes.
void backward(const Tensor& root, double seed = 1.0);

// Identity whose backward calls `hook(gradient)` first: the hook "before backward" of a module's output.
Tensor with_backward_hook(const Tensor& t, std::function<void()> hook, Place place = Place::current());

// forward(x), of which the graph keeps x alone: the backward pass runs it again, with the same random numbers, and goes
// on through what that records (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016). Same bits, same
// hooks, less memory, one more forward pass. `parameters` are all other tensors with a gradient that forward() reads;
// neither they nor x may be written before the backward pass. forward() must be a function of x and these, and what it
// gives by other ways than its result has no gradient.
Tensor recomputed(const Tensor& x, const std::vector<Tensor>& parameters, std::function<Tensor(const Tensor&)> forward,
                  Place place = Place::current());

}  // namespace lockstep
