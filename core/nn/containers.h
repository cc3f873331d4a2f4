// Modules that hold others: Sequential, which runs them one after the other, and ModuleList, whose owner calls them.
// Both own what they hold, under the names "0", "1" and so on.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/nn/module.h"

namespace lockstep {

// Sequential(make<Linear>(784, 128), make<Relu>(), make<Linear>(128, 10))
template <class M, class... Args>
std::unique_ptr<ModuleOf<Tensor>> make(Args&&... args) {
  return std::make_unique<M>(std::forward<Args>(args)...);
}

class Sequential : public ModuleOf<Tensor> {
 public:
  template <class... Parts>
  explicit Sequential(std::unique_ptr<Parts>... parts) {
    (add(std::move(parts)), ...);
  }
  void add(std::unique_ptr<ModuleOf<Tensor>> part) {
    const auto number = static_cast<int64_t>(parts_.size());
    parts_.push_back(&adopt(str(number), std::move(part)));
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (ModuleOf<Tensor>* part : parts_) y = (*part)(y);
    return y;
  }

 private:
  std::vector<ModuleOf<Tensor>*> parts_;
};

// Modules of one class, which the module that holds this one calls. It is not called itself: of a model's list each
// module is a block of the model.
template <class M>
class ModuleList : public Module {
 public:
  template <class... Args>
  M& add(Args&&... args) {
    M& made = child<M>(str(size()), std::forward<Args>(args)...);
    list_.push_back(&made);
    return made;
  }
  bool is_list() const override { return true; }
  int64_t size() const { return static_cast<int64_t>(list_.size()); }
  M& operator[](int64_t i) const { return *list_.at(static_cast<size_t>(i)); }
  auto begin() const { return list_.begin(); }  // pointers
  auto end() const { return list_.end(); }

 private:
  std::vector<M*> list_;
};

}  // namespace lockstep
