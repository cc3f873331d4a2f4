// Module: a tree of parameters and children with dotted names. Parameters have shapes but no bytes until somebody
// places them (sharding/data_parallel, or place_parameters for a model of one's own). A module owns its children and
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
  bool decay = false;  // does weight decay apply where nothing else is said? Not for vectors: norms and biases.
};

struct NamedParameter {
  std::string name;  // dotted: "blocks.0.up.weight"
  Parameter* parameter;
};

struct ModuleHooks {
  std::function<void()> before_forward, after_forward, before_backward;
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // hook, forward, hook
  Tensor operator()(const Tensor& x);
  virtual Tensor forward(const Tensor& x) = 0;

  // All parameters, own first, then children's, in order of registration.
  std::vector<NamedParameter> parameters() const;
  const std::vector<std::pair<std::string, std::unique_ptr<Module>>>& children() const { return children_; }
  // Dotted name below the root; empty for the root and until name_tree().
  const std::string& name() const { return name_; }
  // Gives every module its dotted name. The root's owner calls it once.
  void name_tree(std::string_view name = {});
  void train(bool on = true);  // and all children
  void eval() { train(false); }
  bool training() const { return training_; }
  void set_hooks(ModuleHooks hooks) { hooks_ = std::move(hooks); }
  // Are its parameters read only while its operator() runs? Else they stay in memory for a whole step wherever others
  // come and go.
  virtual bool self_contained() const { return true; }
  // operator() keeps its input alone for the backward pass, which runs forward() again (autograd's recomputed()): same
  // bits, less memory. The hooks of this module surround the first run alone; those of its children fire in both.
  void set_recompute(bool on) { recompute_ = on; }
  // The same for the attention within: a module that has some overrides this. Returns how many places changed.
  virtual int recompute_attention(bool on);

 protected:
  // Around a pass that is not operator()'s: what surrounds any, hooks too. Gives what `forward` gives.
  Tensor surrounded(const std::function<Tensor()>& forward);
  // Weight decay applies to matrices and larger, unless `decay` says otherwise.
  Tensor& parameter(std::string name, const Shape& shape, Init init);
  template <class M, class... Args>
  M& child(std::string name, Args&&... args) {
    auto made = std::make_unique<M>(std::forward<Args>(args)...);
    M& ref = *made;
    children_.emplace_back(std::move(name), std::move(made));
    return ref;
  }

 private:
  void collect(const std::string& prefix, std::vector<NamedParameter>& out) const;

  std::string name_;
  bool training_ = true, recompute_ = false;
  mutable std::deque<Parameter> parameters_;
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
  ModuleHooks hooks_;
};

// These modules' parameters that require a gradient, children's included: what recomputed() wants to know.
std::vector<Tensor> trainable(std::initializer_list<const Module*> modules);

// Allocates and initialises every parameter (fp32) where no DataParallel does it: inference, small tools, tests.
void place_parameters(Module& root, uint64_t seed);

}  // namespace lockstep
