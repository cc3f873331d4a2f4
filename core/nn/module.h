// Module: a tree of parameters and child modules with dotted names. Parameters have shapes but no bytes until
// DataParallel (sharding/data_parallel.h) or place_parameters() allocates them. A module owns its children and
// parameters; pointers and references to them stay valid.
#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/nn/init.h"
#include "core/tensor/tensor.h"

namespace lockstep {

struct Parameter {
  std::string name;  // within its module
  Tensor value;
  Init init;
  bool decay = false;  // whether weight decay applies by default: not to vectors (norms, biases)
  bool table = false;  // rows that are looked up or added, not a matrix by which features are multiplied
};

struct NamedParameter {
  std::string name;  // dotted: "blocks.0.up.weight"
  Parameter* parameter;
};

// State that is no parameter: the same on every rank, saved with the parameters. Each micro-batch's forward pass in
// training may leave an `update`; the step folds them in the order of the micro-batches: value += rate (update -
// value).
struct Buffer {
  std::string name;  // within its module
  Tensor value;      // fp32
  double initial = 0, rate = 0;
  Tensor update;  // fp32, of value's shape; of the forward pass that ran last
};

struct NamedBuffer {
  std::string name;  // dotted
  Buffer* buffer;
};

// Is the dotted name that of something below the module with that name?
inline bool is_of_module(std::string_view name, std::string_view module) {
  return name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.';
}

struct ModuleHooks {
  std::function<void()> before_forward, after_forward, before_backward;
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Calls before_forward, forward(), after_forward.
  Tensor operator()(const Tensor& x);
  virtual Tensor forward(const Tensor& x) = 0;

  // All parameters, own first, then children's, in order of registration.
  std::vector<NamedParameter> parameters() const;
  std::vector<NamedBuffer> buffers() const;  // in the same order
  const std::vector<std::pair<std::string, std::unique_ptr<Module>>>& children() const { return children_; }
  // Dotted name below the root; empty for the root and until name_tree().
  const std::string& name() const { return name_; }
  // Gives every module its dotted name. The root's owner calls it once.
  void name_tree(std::string_view name = {});
  void train(bool on = true);  // and all children
  void eval() { train(false); }
  bool training() const { return training_; }
  void set_hooks(ModuleHooks hooks) { hooks_ = std::move(hooks); }
  // Whether its parameters are read only while its operator() runs. If not, they stay gathered for a whole step at
  // level `parameters`.
  virtual bool self_contained() const { return true; }
  // operator() then saves only its input, and the backward pass runs forward() again (recomputed() in
  // core/autograd/node.h): same bits, less memory. This module's forward hooks are called in the first run only, those
  // of its children in both.
  void set_recompute(bool on) { recompute_ = on; }
  // The same for attention alone; modules with attention override it. Returns the number of places changed.
  virtual int recompute_attention(bool on);

 protected:
  // Runs `forward` with the hooks and profiler range of operator(), for passes that are not operator()'s.
  Tensor surrounded(const std::function<Tensor()>& forward);
  // Weight decay applies to matrices and larger, unless `decay` says otherwise.
  Tensor& parameter(std::string name, const Shape& shape, Init init);
  // A parameter of rows that are looked up or added, such as embeddings of tokens or positions: an optimizer of
  // matrices (muon) leaves it to another. Embedding makes its weight so.
  Tensor& table(std::string name, const Shape& shape, Init init);
  Buffer& buffer(std::string name, const Shape& shape, double initial, double rate);
  template <class M, class... Args>
  M& child(std::string name, Args&&... args) {
    auto made = std::make_unique<M>(std::forward<Args>(args)...);
    M& ref = *made;
    children_.emplace_back(std::move(name), std::move(made));
    return ref;
  }

 private:
  void collect(const std::string& prefix, std::vector<NamedParameter>& out) const;
  void collect(const std::string& prefix, std::vector<NamedBuffer>& out) const;

  std::string name_;
  bool training_ = true, recompute_ = false;
  mutable std::deque<Parameter> parameters_;
  mutable std::deque<Buffer> buffers_;
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
  ModuleHooks hooks_;
};

// The parameters of these modules and their children that require a gradient, for recomputed().
std::vector<Tensor> trainable(std::initializer_list<const Module*> modules);

// Allocates and initialises every parameter and buffer (fp32) without DataParallel: for inference, small tools and
// tests.
void place_parameters(Module& root, uint64_t seed);

}  // namespace lockstep
