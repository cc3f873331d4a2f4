// Slots with made-up values and gradients, for tests of optimizers. Plain functions.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "optim/builtin.h"

namespace lockstep::testing {

using Maker = std::function<std::unique_ptr<Optimizer>(const std::vector<Slot>&)>;

inline std::vector<float> numbers(int64_t n, uint64_t seed, float scale = 1) {
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i)
    v.push_back(scale * (2 * uniform_of(philox(seed, static_cast<uint64_t>(i), 0).v[0]) - 1));
  return v;
}

inline Slot slot(const std::string& name, int64_t n, bool decay, double lr_scale = 1) {
  Slot s;
  s.name = name;
  s.region = Shape{n};
  s.master = Tensor::of(numbers(n, 1), {n});
  s.gradient = Tensor::zeros({n});
  s.decay = decay;
  s.lr_scale = lr_scale;
  return s;
}

inline Slot matrix(const std::string& name, const Shape& shape) {
  Slot s = slot(name, shape.numel(), true);
  s.region = shape;
  return s;
}

inline void set_gradient(Slot& s, uint64_t step) {
  const auto g = numbers(s.gradient.numel(), 100 + step, 2);
  memcpy(s.gradient.mutable_values<float>(), g.data(), g.size() * sizeof(float));
}

struct UpdateScalars {
  double lr = 0, grad_scale = 1;
  bool skip = false;
};

inline void update_once(Optimizer& optimizer, const std::vector<Slot>& slots, const UpdateScalars& s) {
  optimizer.set_lr(s.lr);
  optimizer.step(slots, {.grad_scale = s.grad_scale, .finite = !s.skip});
}

}  // namespace lockstep::testing
