// The backward pass: counts edges, then pops ready nodes, latest first. No recursion anywhere.
#include <algorithm>
#include <atomic>
#include <limits>
#include <queue>

#include "core/autograd/node.h"
#include "core/base/trace.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

std::string place_text(const CallSite& p) {
  std::string_view file = p.file_name();
  for (std::string_view room : {"tests/", "core/", "launch/"}) {
    auto at = file.rfind(room);
    if (at != std::string_view::npos) {
      file.remove_prefix(at);
      break;
    }
  }
  return str(file, ":", static_cast<int64_t>(p.line()));
}

constexpr uint64_t kLeafSequence = std::numeric_limits<uint64_t>::max();

// Sequence numbers of one thread's graph need only grow within that thread.
uint64_t next_sequence() {
  thread_local uint64_t counter = 0;
  return ++counter;
}

void check_finite(const Tensor& t, const char* what, const Node& node) {
  if (raw::all_finite(t)) return;
  throw Error(ExitCode::kNumeric, str("anomaly: ", what, " of ", node.name, " called at ", place_text(node.place),
                                      " holds NaN or infinity; it is ", t));
}

// Takes the gradient in: the first contribution begins it, later ones are added.
void begin_leaf(Node& n) {
  auto record = n.leaf.lock();
  if (!record) return;
  if (!n.grad.defined() && record->grad.defined()) {  // from an earlier pass
    n.grad = record->grad;
    n.grad_owned = true;
  }
}

Tensor new_gradient(Node& n) {
  if (auto record = n.leaf.lock(); record && record->grad_buffer.defined()) {
    if (!record->grad_buffer.allocated() && record->before_grad) record->before_grad();
    record->grad_buffer.allocate();
    return record->grad_buffer;
  }
  return Tensor::empty(n.shape, n.dtype);
}

void run_leaf(Node& n) {
  auto record = n.leaf.lock();
  if (!record) return;
  if (n.grad.defined()) {
    const Tensor& buffer = record->grad_buffer;
    const bool elsewhere = buffer.defined() ? !n.grad.same_place(buffer) : !n.grad_owned || !n.grad.is_contiguous();
    if (elsewhere) {  // passed on as it was: bring it home
      Tensor home = new_gradient(n);
      raw::copy(home, n.grad);
      n.grad = home;
    }
    record->grad = n.grad;
  }
  n.grad = Tensor();
  n.grad_owned = false;
  if (record->on_grad) record->on_grad();
}

}  // namespace

// One backward pass: nodes that were reached, and those among them whose gradient is complete.
class BackwardPass {
 public:
  // Counts, for every node from `root` on that was not yet `visited`, the edges that lead to it. Returns the first that
  // was reached now.
  size_t reach(const std::shared_ptr<Node>& root) {
    const size_t first = reached_.size();
    reached_.push_back(root);
    root->visited = true;
    for (size_t i = first; i < reached_.size(); ++i)
      for (auto& input : reached_[i]->inputs)
        if (input) {
          ++input->pending;
          if (!input->visited) {
            input->visited = true;
            reached_.push_back(input);
          }
        }
    for (size_t i = first; i < reached_.size(); ++i) reached_[i]->visited = false;
    return first;
  }

  void start(const std::shared_ptr<Node>& root, const Tensor& gradient, bool owned) {
    root->grad = gradient;
    root->grad_owned = owned;
    ready_.push(root);
  }

  // A graph recorded while `node` ran, which ends at the node's inputs: their edges from `node` are still pending, so
  // none of them has run. Its own nodes are later than all that wait, so they run next, as they would have without
  // recomputation.
  void enter(Node& node, const std::shared_ptr<Node>& root, const Tensor& gradient) {
    for (auto& input : node.inputs)
      if (input) input->visited = true;
    const size_t first = reach(root);
    for (auto& input : node.inputs)
      if (input) input->visited = false;
    for (size_t i = first; i < reached_.size(); ++i) {
      const Node& n = *reached_[i];
      check(n.sequence > node.sequence && n.sequence != kLeafSequence, node.name, " called at ", place_text(node.place),
            ": its forward pass read the gradient-carrying result of ", n.name,
            n.sequence == kLeafSequence ? std::string() : str(" called at ", place_text(n.place)), ", of shape ",
            n.shape, ", which is neither its input nor among its parameters");
    }
    start(root, gradient, false);
  }

  void run() {
    trace_mark();
    try {
      while (!ready_.empty()) {
        std::shared_ptr<Node> node = ready_.top();
        ready_.pop();
        if (!node->leaf.expired()) {
          run_leaf(*node);
          continue;
        }
        if (node->grad.defined()) {  // else nothing reached it
          check(node->backward != nullptr, "backward through ", node->name, " called at ", place_text(node->place),
                " a second time: its buffers were freed by the first pass");
          WithMemoryFor named(node->memory_for);
          TraceModule traced(node->memory_for);
          TraceOp op(node->name, true);
          WithProfilerRange range(node->name);
          Gradients grads(*node, *this);
          Tensor grad = std::exchange(node->grad, Tensor());
          node->backward(grad, grads);
          if (context().anomaly)
            for (auto& input : node->inputs)
              if (input && input->grad.defined()) check_finite(input->grad, "a gradient from the backward pass", *node);
        }
        node->backward = nullptr;
        for (auto& input : node->inputs)
          if (input && --input->pending == 0) ready_.push(input);
        node->inputs.clear();
      }
    } catch (...) {
      for (auto& n : reached_) n->pending = 0, n->grad = Tensor();
      throw;
    }
  }

 private:
  struct Later {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->sequence < b->sequence;
    }
  };
  std::vector<std::shared_ptr<Node>> reached_;
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, Later> ready_;
};

Node::~Node() {
  // Take the chain apart here, so that destructors do not nest.
  std::vector<std::shared_ptr<Node>> drop = std::move(inputs);
  backward = nullptr;
  while (!drop.empty()) {
    std::shared_ptr<Node> n = std::move(drop.back());
    drop.pop_back();
    if (n && n.use_count() == 1) {
      for (auto& input : n->inputs) drop.push_back(std::move(input));
      n->inputs.clear();
      n->backward = nullptr;  // saved tensors may hold nodes only through records, which detach() dropped
    }
  }
}

void Gradients::add(int i, const Tensor& gradient) {
  Node& n = *node_.inputs[static_cast<size_t>(i)];
  check(gradient.shape() == n.shape, node_.name, ": gradient ", gradient, " for an input of shape ", n.shape);
  if (!n.backward) begin_leaf(n);
  if (!n.grad.defined()) {
    if (gradient.dtype() == n.dtype) n.grad = gradient;
    else raw::copy(n.grad = new_gradient(n), gradient);
    n.grad_owned = true;
    return;
  }
  Sum s = sum_target(i);
  raw::add(s.out, s.addend, gradient);
}

void Gradients::pass(int i, const Tensor& gradient) {
  Node& n = *node_.inputs[static_cast<size_t>(i)];
  if (!n.backward) begin_leaf(n);
  if (!n.grad.defined() && gradient.dtype() == n.dtype) {
    check(gradient.shape() == n.shape, node_.name, ": gradient ", gradient, " for an input of shape ", n.shape);
    n.grad = gradient;
    n.grad_owned = false;
    return;
  }
  add(i, gradient);
}

Gradients::Sum Gradients::sum_target(int i) {
  Node& n = *node_.inputs[static_cast<size_t>(i)];
  if (!n.backward) begin_leaf(n);
  if (!n.grad.defined()) {
    n.grad = new_gradient(n);
    n.grad_owned = true;
    return {n.grad, {}};
  }
  if (n.grad_owned) return {n.grad, n.grad};
  Tensor before = n.grad;
  n.grad = new_gradient(n);
  n.grad_owned = true;
  return {n.grad, before};
}

Tensor Gradients::target(int i, bool& accumulate) {
  Sum s = sum_target(i);
  accumulate = s.addend.defined();
  if (accumulate && !s.addend.same_place(s.out)) raw::copy(s.out, s.addend);
  return s.out;
}

void Gradients::pass_through(const Tensor& result, const Tensor& gradient) {
  check(result.shape() == node_.shape && result.dtype() == node_.dtype, node_.name, " called at ",
        place_text(node_.place), ": its forward pass gave ", node_.dtype, node_.shape, " at first and ", result,
        " when it was run again");
  Node* root = grad_node(result);
  if (!root) return;
  for (size_t i = 0; i < node_.inputs.size(); ++i)
    if (node_.inputs[i].get() == root) return pass(static_cast<int>(i), gradient);  // the input itself
  pass_.enter(node_, result.record()->node, gradient);
}

Tensor& require_grad(Tensor& t, bool on) {
  auto record = std::make_shared<AutogradRecord>();
  record->requires_grad = on;
  if (on) {
    record->node = std::make_shared<Node>();
    record->node->name = "leaf";
    record->node->sequence = kLeafSequence;
    record->node->leaf = record;
    record->node->shape = t.shape();
    record->node->dtype = t.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  }
  t.set_record(std::move(record));
  return t;
}

void set_requires_grad(const Tensor& leaf, bool on) {
  check(leaf.record() && leaf.record()->node && !leaf.record()->node->leaf.expired(), "set_requires_grad of ", leaf,
        ", which is no leaf");
  leaf.record()->requires_grad = on;
}

bool requires_grad(const Tensor& t) { return grad_node(t) != nullptr; }
Tensor grad_of(const Tensor& leaf) { return leaf.record() ? leaf.record()->grad : Tensor(); }
void clear_grad(const Tensor& leaf) {
  if (leaf.record()) leaf.record()->grad = Tensor();
}

namespace {

template <class Inputs>
bool any_recorded(const Inputs& inputs) {
  if (!context().grad) return false;
  return std::any_of(inputs.begin(), inputs.end(), [](const Tensor* t) { return t->defined() && grad_node(*t); });
}

template <class Inputs>
Tensor recorded(const char* name, CallSite place, Tensor out, const Inputs& inputs, Backward backward) {
  out.set_record(nullptr);
  const bool record_it = any_recorded(inputs);
  if (!record_it && !context().anomaly) return out;
  auto node = std::make_shared<Node>();
  node->name = name;
  node->place = place;
  if (context().anomaly) check_finite(out, "the result", *node);
  if (!record_it) return out;
  node->memory_for = context().memory_for;
  node->sequence = next_sequence();
  node->shape = out.shape();
  node->dtype = out.dtype();
  for (const Tensor* t : inputs) node->inputs.push_back(t->defined() && grad_node(*t) ? t->record()->node : nullptr);
  node->backward = std::move(backward);
  auto record = std::make_shared<AutogradRecord>();
  record->requires_grad = true;
  record->node = std::move(node);
  out.set_record(std::move(record));
  return out;
}

}  // namespace

bool recording(std::initializer_list<const Tensor*> inputs) { return any_recorded(inputs); }

Tensor result_of(const char* name, CallSite place, Tensor out, std::initializer_list<const Tensor*> inputs,
                 Backward backward) {
  return recorded(name, place, std::move(out), inputs, std::move(backward));
}
Tensor result_of(const char* name, CallSite place, Tensor out, const std::vector<const Tensor*>& inputs,
                 Backward backward) {
  return recorded(name, place, std::move(out), inputs, std::move(backward));
}

const Tensor& Saved::get(const char* op) const {
  check(!tensor_.defined() || tensor_.storage()->version() == version_, "a tensor saved by ", op,
        " for its backward pass (", tensor_, ") was written in place afterwards: version ",
        tensor_.defined() ? tensor_.storage()->version() : 0, ", saved at ", version_);
  return tensor_;
}

void backward(const Tensor& root, double seed) {
  check(root.numel() == 1, "backward: needs a tensor of one element, not ", root);
  check(grad_node(root) != nullptr, "backward: the root needs no gradient (no_grad mode, or no parameter took part)");
  NoGrad no_grad;
  std::shared_ptr<Node> root_node = root.record()->node;
  check(root_node->backward != nullptr || !root_node->leaf.expired(),
        "backward: this graph was already swept; its buffers are gone");

  BackwardPass pass;
  pass.reach(root_node);
  pass.start(root_node, Tensor::full(root.shape(), seed, root_node->dtype), true);
  pass.run();
}

Tensor with_backward_hook(const Tensor& t, std::function<void()> hook, CallSite place) {
  return result_of("backward_hook", place, t, {&t}, [hook = std::move(hook)](const Tensor& g, Gradients& grads) {
    hook();
    grads.pass(0, g);
  });
}

Tensor recomputed(const std::vector<Tensor>& inputs, const std::vector<Tensor>& parameters, ForwardPass forward,
                  CallSite place) {
  std::vector<const Tensor*> all;
  std::vector<Saved> unchanged;
  for (const auto* tensors : {&inputs, &parameters})
    for (const Tensor& t : *tensors) {
      all.push_back(&t);
      unchanged.emplace_back(t);
    }
  if (!any_recorded(all)) return forward(inputs);
  const RandomKey key = context().random;
  const SiteCalls calls = context().site_calls;
  Tensor y;
  {
    NoGrad no_grad;
    y = forward(inputs);
  }
  return result_of("recomputed", place, y, all,
                   [inputs, unchanged = std::move(unchanged), forward = std::move(forward), key, calls](
                       const Tensor& g, Gradients& grads) {
                     for (const Saved& one : unchanged) one.get("recomputed");
                     WithRandom random(key, calls);
                     WithGrad recording(true);
                     grads.pass_through(forward(inputs), g);
                   });
}

}  // namespace lockstep
