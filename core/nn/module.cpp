#include "core/nn/module.h"

#include "core/autograd/node.h"
#include "core/base/error.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

namespace {

// Runs `forward`; a broken contract in it, such as shapes that do not fit, is told of the innermost module by its path.
Tensor named_in(const std::string& module, const std::function<Tensor()>& forward) {
  constexpr std::string_view kBegin = "in the forward pass of ";
  try {
    return forward();
  } catch (const Error& e) {
    if (e.code() != ExitCode::kInternal || std::string_view(e.what()).starts_with(kBegin)) throw;
    throw e.with_message(str(kBegin, module.empty() ? "the model itself" : "module ", module, ": ", e.what()));
  }
}

}  // namespace

Tensor Module::surrounded_again(const std::vector<Tensor>& tensors,
                                std::function<Tensor(const std::vector<Tensor>&)> forward) {
  return surrounded([&] {
    return recomputed(tensors, trainable({this}),
                      [this, training = training_, forward = std::move(forward)](const std::vector<Tensor>& again) {
                        check(training_ == training, "module ", name_,
                              ": train() or eval() between a forward pass and its recomputation");
                        return forward(again);
                      });
  });
}

Tensor Module::surrounded(const std::function<Tensor()>& forward, bool observed) {
  if (hooks_.before_forward) hooks_.before_forward();
  WithMemoryFor named(name_);
  TraceModule traced(name_);
  WithProfilerRange range(name_);
  Tensor y = named_in(name_, forward);
  if (observer_ && observed) observer_(y);
  if (hooks_.after_forward) hooks_.after_forward();
  if (hooks_.before_backward && requires_grad(y)) y = with_backward_hook(y, hooks_.before_backward);
  return y;
}

Module* Module::find(std::string_view name) {
  if (name.empty()) return this;
  for (auto& [own, module] : children_) {  // whose names may have points of their own: blocks.0
    if (own == name) return module.get();
    if (!is_of_module(name, own)) continue;
    if (Module* found = module->find(name.substr(own.size() + 1))) return found;
  }
  return nullptr;
}

int Module::recompute_attention(bool on) {
  int places = 0;
  for (auto& [_, module] : children_) places += module->recompute_attention(on);
  return places;
}

MaskedAttentions Module::masked_attention(DType type) const {
  MaskedAttentions kinds;
  for (auto& [_, module] : children_) kinds.merge(module->masked_attention(type));
  return kinds;
}

Tensor& Module::parameter(std::string name, const Shape& shape, Init init) {
  Parameter& p = parameters_.emplace_back();
  p.name = std::move(name);
  p.value = Tensor::unallocated(shape);
  require_grad(p.value);
  p.init = init;
  p.decay = shape.rank() >= 2;
  return p.value;
}

Tensor& Module::table(std::string name, const Shape& shape, Init init) {
  Tensor& value = parameter(std::move(name), shape, init);
  parameters_.back().table = true;
  return value;
}

Buffer& Module::buffer(std::string name, const Shape& shape, double initial, double rate) {
  return buffers_.emplace_back(Buffer{std::move(name), Tensor::unallocated(shape), initial, rate, {}});
}

void Module::collect(const std::string& prefix, std::vector<NamedBuffer>& out) const {
  for (Buffer& b : buffers_) out.push_back({prefix + b.name, &b});
  for (auto& [name, module] : children_) module->collect(prefix + name + ".", out);
}

std::vector<NamedBuffer> Module::buffers() const {
  std::vector<NamedBuffer> out;
  collect("", out);
  return out;
}

void Module::collect(const std::string& prefix, std::vector<NamedParameter>& out) const {
  for (Parameter& p : parameters_) out.push_back({prefix + p.name, &p});
  for (auto& [name, module] : children_) module->collect(prefix + name + ".", out);
}

std::vector<NamedParameter> Module::parameters() const {
  std::vector<NamedParameter> out;
  collect("", out);
  return out;
}

std::vector<Module*> Module::blocks() const {
  std::vector<Module*> out;
  for (auto& [_, module] : children_) {
    if (!module->is_list()) {
      out.push_back(module.get());
      continue;
    }
    const std::vector<Module*> held = module->blocks();
    out.insert(out.end(), held.begin(), held.end());
  }
  return out;
}

void Module::name_tree(std::string_view name) {
  name_ = name;
  for (auto& [child_name, module] : children_)
    module->name_tree(name_.empty() ? child_name : str(name_, ".", child_name));
}

void Module::train(bool on) {
  training_ = on;
  for (auto& [_, module] : children_) module->train(on);
}

std::vector<Tensor> trainable(std::initializer_list<const Module*> modules) {
  std::vector<Tensor> out;
  for (const Module* m : modules)
    for (auto& [_, p] : m->parameters())
      if (requires_grad(p->value)) out.push_back(p->value);
  return out;
}

void place_parameters(Module& root, uint64_t seed) {
  root.name_tree();
  for (auto& [name, p] : root.parameters()) {
    p->value.allocate();
    fill_initial(p->init, seed, name, 0, p->value.numel(), static_cast<float*>(p->value.write()));
  }
  for (auto& [_, b] : root.buffers()) {
    b->value.allocate();
    raw::fill(b->value, b->initial);
  }
}

}  // namespace lockstep
