// Module: a tree of parameters and child modules with dotted names. ModuleOf: a module that is called with arguments of
// given types. Parameters have shapes but no bytes until DataParallel (sharding/data_parallel.h) or place_parameters()
// allocates them. A module owns its children and parameters; pointers and references to them stay valid.
#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/kernels/attention/masked_attention.h"
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

// A tensor of state by the dotted name of the parameter or buffer that it is.
struct NamedTensor {
  std::string name;
  Tensor value;
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

  // All parameters, own first, then children's, in order of registration.
  std::vector<NamedParameter> parameters() const;
  std::vector<NamedBuffer> buffers() const;  // in the same order
  const std::vector<std::pair<std::string, std::unique_ptr<Module>>>& children() const { return children_; }
  // Dotted name below the root; empty for the root and until name_tree().
  const std::string& name() const { return name_; }
  // Gives every module its dotted name. The root's owner calls it once.
  void name_tree(std::string_view name = {});
  // Values of parameters and buffers by dotted name, in the order of parameters() and buffers(); their memory is
  // shared.
  std::vector<NamedTensor> state_dict() const;
  // Writes them to a safetensors file, in fp32, and reads one. Where a module has no memory yet, as before
  // place_parameters(), load() allocates it. load() throws ExitCode::kBadData where a name or a shape differs, naming
  // the tensor, and what WeightFiles::open throws; save() what WeightWriter does (core/io/safetensors.h). Not for a
  // module whose parameters a DataParallel holds: see core/state/checkpoint.h.
  void save(const std::string& path) const;
  void load(const std::string& path);
  void train(bool on = true);  // and all children
  void eval() { train(false); }
  bool training() const { return training_; }
  void set_hooks(ModuleHooks hooks) { hooks_ = std::move(hooks); }
  // Called with the result of each forward pass of this module; empty: nothing is.
  void set_observer(std::function<void(const Tensor& result)> observer) { observer_ = std::move(observer); }
  // Itself, or the module of this dotted name below it; null where there is none.
  Module* find(std::string_view name);
  // Whether it is never called, and only holds modules that are (ModuleList in core/nn/containers.h).
  virtual bool is_list() const { return false; }
  // The children, and in the place of lists what these hold: the blocks of a model.
  std::vector<Module*> blocks() const;
  // Whether its parameters are read only while its operator() runs. If not, they stay gathered for a whole step at
  // level `parameters`.
  virtual bool self_contained() const { return true; }
  // Where self_contained() is false: whether they are read so nonetheless in this model. Such a module stays gathered
  // unless it is frozen: else it would be gathered in both passes of each micro-batch.
  virtual bool may_be_apart() const { return self_contained(); }
  // operator() then saves only its arguments, and the backward pass runs forward() again (recomputed() in
  // core/autograd/node.h): same bits, less memory. This module's forward hooks are called in the first run only, those
  // of its children in both.
  void set_recompute(bool on) { recompute_ = on; }
  // The same for attention alone; modules with attention override it. Returns the number of places changed.
  virtual int recompute_attention(bool on);
  // The kinds of attention that keep documents, or the lengths of samples, apart in this type: its own and its
  // children's. On a GPU kinds that nothing lists are computed by slower kernels. Modules that call attention() with
  // documents or lengths override it.
  virtual MaskedAttentions masked_attention(DType type) const;

 protected:
  // Runs `forward` with the hooks and profiler range of operator(), for passes that are not operator()'s.
  // `observed`: its result is the module's.
  Tensor surrounded(const std::function<Tensor()>& forward, bool observed = true);
  bool recomputes() const { return recompute_; }
  // The same, where recomputes(): saves `tensors` alone, and `forward` makes the result of them.
  Tensor surrounded_again(const std::vector<Tensor>& tensors,
                          std::function<Tensor(const std::vector<Tensor>&)> forward);
  // Weight decay applies to matrices and larger, unless `decay` says otherwise.
  Tensor& parameter(std::string name, const Shape& shape, Init init);
  // A parameter of rows that are looked up or added, such as embeddings of tokens or positions: an optimizer of
  // matrices (muon) leaves it to another. Embedding makes its weight so.
  Tensor& table(std::string name, const Shape& shape, Init init);
  Buffer& buffer(std::string name, const Shape& shape, double initial, double rate);
  template <class M, class... Args>
  M& child(std::string name, Args&&... args) {
    return adopt(std::move(name), std::make_unique<M>(std::forward<Args>(args)...));
  }
  template <class M>
  M& adopt(std::string name, std::unique_ptr<M> made) {
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
  std::function<void(const Tensor&)> observer_;
};

// A module that is called with these arguments: tensors, and values that are no tensors, such as an AttentionScope
// (core/nn/attention_scope.h), which are copied where the pass runs again. Tensors in such values take no gradient.
template <class... Inputs>
class ModuleOf : public Module {
 public:
  // Calls before_forward, forward(), after_forward.
  Tensor operator()(const Inputs&... inputs) {
    if (!recomputes()) return surrounded([&] { return forward(inputs...); });
    std::vector<Tensor> tensors;
    (add_tensor(tensors, inputs), ...);
    return surrounded_again(tensors, [this, all = std::tuple<Inputs...>(inputs...)](const std::vector<Tensor>& again) {
      std::tuple<Inputs...> now = all;
      size_t next = 0;
      std::apply([&](Inputs&... one) { (take_tensor(one, again, next), ...); }, now);
      return std::apply([this](const Inputs&... one) { return forward(one...); }, now);
    });
  }
  virtual Tensor forward(const Inputs&... inputs) = 0;

 private:
  template <class Input>
  static void add_tensor(std::vector<Tensor>& tensors, const Input& input) {
    if constexpr (std::is_same_v<Input, Tensor>) tensors.push_back(input);
  }
  template <class Input>
  static void take_tensor(Input& input, const std::vector<Tensor>& tensors, size_t& next) {
    if constexpr (std::is_same_v<Input, Tensor>) input = tensors[next++];
  }
};

// The parameters of these modules and their children that require a gradient, for recomputed().
std::vector<Tensor> trainable(std::initializer_list<const Module*> modules);

// Allocates and initialises every parameter and buffer (fp32) without DataParallel: for inference, small tools and
// tests.
void place_parameters(Module& root, uint64_t seed);

}  // namespace lockstep
